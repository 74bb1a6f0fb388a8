"""Readers beside a writer: a query sees one commit whole, and a snapshot never moves."""

import threading

import omnigraph

SCHEMA = """
node Account { key: String @key  amount: I64 }
edge Pays: Account -> Account
"""
TRANSFER = """
query transfer($n: I64, $m: I64) {
    update Account set { amount: $n } where key = "a"
    update Account set { amount: $m } where key = "b"
    insert Pays { from: "a", to: "b" }
}
"""
TOTALS = """
query totals() {
    match { $x: Account }
    return { sum($x.amount) as total, count($x) as n }
}
"""
PAYMENTS = """
query payments() {
    match { $x: Account { key: "a" } $x $e:pays $y }
    return { $x.amount as left, count($e) as n }
}
"""


def test_every_query_sees_one_commit_whole_while_a_writer_commits(tmp_path):
    graph = omnigraph.create(tmp_path / "bank", SCHEMA)
    graph.load([{"type": "Account", "data": {"key": key, "amount": 100}} for key in "ab"], mode="append")
    rounds = 25
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for step in range(1, rounds + 1):
                graph.mutate(TRANSFER, {"n": 100 - step, "m": 100 + step})
        except BaseException as exc:  # noqa: BLE001 -- shown by the assertion below
            failures.append(exc)

    before = graph.snapshot()
    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while writer.is_alive():
        assert graph.query(TOTALS).to_pylist() == [{"total": 200.0, "n": 2}]
        for row in graph.query(PAYMENTS):
            assert row["left"] == 100 - row["n"]
            seen.add(row["n"])
        assert graph.query(PAYMENTS, at=before.version).to_pylist() == []
    writer.join()
    assert failures == []
    assert graph.query(PAYMENTS).to_pylist() == [{"left": 100 - rounds, "n": rounds}]
    assert len(seen) > 1


def test_a_stream_opened_before_a_commit_goes_on_with_what_it_began(tmp_path):
    graph = omnigraph.create(tmp_path / "bank", SCHEMA)
    graph.load([{"type": "Account", "data": {"key": f"k{n:03d}", "amount": n}} for n in range(300)], mode="append")
    listing = "query all() { match { $x: Account } return { $x.key, $x.amount } order { $x.key } }"
    stream = graph.query(listing).to_batches(100)
    first = next(stream)
    graph.mutate('query m() { update Account set { amount: 7 } where key = "k250" }')
    graph.mutate('query m() { delete Account where key = "k299" }')
    rows = [row for batch in [first, *stream] for row in batch.to_pylist()]
    assert [row["x.amount"] for row in rows] == list(range(300))
    assert len(graph.query(listing)) == 299
