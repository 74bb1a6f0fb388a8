"""A client of its own of a Spark Connect server: everything the pipeline does, without a driver in this process.

python connect_driver.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph import create
from omnigraph.engine.ingest.progress import Progress
from omnigraph.engine.operations.export import export_lines
from omnigraph.errors import ConstraintError
from omnigraph.pipeline.session import obtain_session, parallelism
from omnigraph.pipeline.streaming import write_stream

SCHEMA = """
node Person { name: String @key  age: I32?  rank: F64? }
edge Knows: Person -> Person { since: Date? }
"""


def person(name: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **data}})


def knows(source: str, target: str) -> str:
    return json.dumps({"edge": "Knows", "from": source, "to": target, "data": {"id": f"{source}-{target}"}})


def main(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    graph = create(folder / "graph", SCHEMA)
    lines = folder / "a.jsonl"
    lines.write_text("\n".join([person("a", age=1), person("b"), knows("a", "b")]))
    heard: list[Progress] = []
    said: list[str] = []
    session = obtain_session(notify=said.append)
    found["said"] = said[0]
    found["session"] = type(session).__module__
    found["parallelism"] = parallelism(session)
    # The session is found without being passed on, as on the command line.
    found["append"] = graph.load(lines, engine="spark", progress=heard.append).rows
    found["tasks"] = max(each.tasks_total for each in heard)
    lines.write_text("\n".join([person("a", age=5), person("c")]))
    found["merge"] = graph.load(lines, mode="merge", engine="spark").rows
    lines.write_text(knows("a", "nobody"))
    try:
        graph.load(lines, engine="spark")
    except ConstraintError as refused:
        found["refused"] = str(refused)
    graph.load({"Person": session.createDataFrame([("d", 7)], "name string, age int")})
    graph.load({"Person": pa.table({"name": ["e"]})}, engine="spark")

    frames = graph.spark()
    people = frames.nodes("Person", columns=["id", "age"])
    found["read"] = sorted(row["id"] for row in people.where("age >= 5").collect())
    session.createDataFrame([("f", 8)], "name string, age int").write.format("omnigraph").mode("append").option(
        "type", "Person"
    ).save(graph.uri)
    analytics = graph.spark().analytics("Knows")
    found["components"] = len({row["component"] for row in analytics.connected_components().collect()})
    analytics.write_back(analytics.pagerank(rounds=2), "rank", "Person", "rank")

    inbox = folder / "inbox"
    inbox.mkdir()
    (inbox / "1.jsonl").write_text(person("streamed") + "\n")
    stream = session.readStream.text(str(inbox))
    options = {"name": "inbox", "checkpoint": str(folder / "checkpoint"), "trigger": {"availableNow": True}}
    for _ in range(2):
        write_stream(graph.context, stream, **options).awaitTermination(120)
    found["exported"] = graph.export(folder / "lines", engine="spark")
    found["parquet"] = graph.export(folder / "parquet", format="parquet", engine="spark")
    again = create(folder / "again", SCHEMA)
    again.load(folder / "lines", engine="spark")
    contents = [list(export_lines(each.context.catalog, each.snapshot())) for each in (graph, again)]
    found["same"] = contents[0] == contents[1]
    found["names"] = [json.loads(line)["data"]["id"] for line in contents[0] if '"type"' in line]
    session.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
