"""Text analysis against the full-text index of the storage engine: whoever it finds, we find."""

import math
import random
import unicodedata

import lance
import pyarrow as pa
import pytest
from lance.query import MatchQuery
from tests.plain.evaluator import levenshtein

from omnigraph.engine.read.text import analysis as module
from omnigraph.engine.read.text.analysis import (
    STOP_WORDS,
    TextIndex,
    TextParts,
    analyse,
    build_text_index,
    joined,
    normalise,
    stem,
    within_distance,
)

WORDS_TEXT = """
added adding egg off running ran runs queen queens queen's flies died dying lying vying tied ties skies sky skis
news relational conditional valency hesitancy digitizer conformably radically differently vilely analogously
vietnamization predication operator feudalism decisiveness hopefulness callousness formality sensitivity sensibility
triplicate formative formalize electricity electrical hopeful goodness revival allowance inference airliner
gyroscopic adjustable defensible irritant replacement adjustment dependent adoption homologous communism activate
angularity bowdlerize probate rate cease controlling rolling past paste pasted pasting university universe universal
organ organization later lateral international interfere interval intervals emerged emergency generic generate
communication arsenal technologist technology biologist geologist proceed proceeded exceed succeeded evening
evenings inning outing canning herring earring agreed feed bleed bed sing singing hopping hoping hop fizzed failing
filing conflated troubled sized early only gently youth boy boyish say by buy playing owned owning others overly
ours hers yours theirs himself herself being having doing because during before above once very why being about
against between through which while whom until under abc123 x1 42 naïve café Café CAFÉ Straße Øre Æon œuvre þorn ﬁne
ﬃ ½ ² Ⅷ ①
"""
WORDS = WORDS_TEXT.split()


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A table of texts with the storage engine's own index."""

    def make(texts):
        path = tmp_path_factory.mktemp("fts") / "texts.lance"
        table = pa.table({"row": pa.array(range(len(texts)), pa.int64()), "text": pa.array(texts, pa.string())})
        dataset = lance.write_dataset(table, path)
        dataset.create_scalar_index("text", "INVERTED")

        def ask(query):
            found = dataset.scanner(
                columns=["row"], full_text_query=MatchQuery(query, "text"), disable_scoring_autoprojection=True
            ).to_table()
            return sorted(found["row"].to_pylist())

        return ask

    return make


def test_every_word_meets_the_words_the_index_says_it_meets(indexed):
    ask = indexed(WORDS)
    tokens = [set(analyse(word)) for word in WORDS]
    for word in WORDS:
        wanted = set(analyse(word))
        assert ask(word) == [row for row, held in enumerate(tokens) if held & wanted], word


def test_words_whose_stem_is_a_stop_word_are_not_in_the_index(indexed):
    endings = ("", "e", "s", "ed", "ing", "ly")
    forms = [word + ending for word in sorted(STOP_WORDS) for ending in endings]
    dropped = [form for form in forms if stem(form) in STOP_WORDS]
    assert {stem(form) for form in dropped} >= STOP_WORDS - {"why"}
    ask = indexed(dropped)
    for form in dropped:
        assert ask(form) == [], form


def test_letters_of_all_scripts_split_and_fold_as_in_the_index(indexed):
    rng = random.Random(3)
    letters = [chr(code) for code in range(0x80, 0x30000) if unicodedata.category(chr(code))[0] in "LNMSP"]
    texts = [f"9{letter}9" for letter in rng.sample(letters, 600)] + ["9é9", "9ß9", "9α9", "9ά9", "9í9", "9ﬀ9"]
    ask = indexed(texts)
    tokens = [set(analyse(text)) for text in texts]
    for query in texts[:250] + texts[600:]:
        wanted = set(analyse(query))
        assert ask(query) == [row for row, held in enumerate(tokens) if held & wanted], query


def test_whole_texts_match_as_in_the_index(indexed):
    rng = random.Random(4)
    texts = [" ".join(rng.choice(WORDS) + rng.choice(["", ",", "!", " - "]) for _ in range(6)) for _ in range(200)]
    texts += ["", "the of", "a" * 39 + " short", "b" * 40 + " short", "snake_case", "co-operate", "O'Neil's"]
    ask = indexed(texts)
    index = build_text_index(pa.array(texts))
    for query in ["queens university", "a" * 39, "b" * 40, "snake", "case", "neil", "operate", "café", "short"]:
        rows = {int(row) for token in analyse(query) if (n := index.find(token)) >= 0 for row in index.postings(n)[0]}
        assert ask(query) == sorted(rows), query


def test_the_index_of_a_column_holds_the_tokens_of_each_row():
    texts = ["the Queen's queens", None, "", "x", "Ünder ünder the sun", "end"]
    index = build_text_index(pa.array(texts))
    for row, text in enumerate(texts):
        tokens = analyse(text)
        assert index.lengths[row] == len(tokens)
        for token in tokens:
            rows, counts = index.postings(index.find(token))
            assert counts[rows.tolist().index(row)] == tokens.count(token)
    assert index.valid.tolist() == [True, False, True, True, True, True]
    assert index.find("nowhere") == -1


def test_a_slice_of_a_column_is_indexed_like_the_column_it_is():
    texts = pa.array(["one", "two words", "three more words", "é four", None])
    for part in (texts.slice(1, 2), texts.slice(3), texts.slice(2, 0)):
        built = build_text_index(part)
        again = build_text_index(pa.array(part.to_pylist(), pa.string()))
        assert built.tokens.to_pylist() == again.tokens.to_pylist()
        assert built.lengths.tolist() == again.lengths.tolist()
        assert built.rows.tolist() == again.rows.tolist()


def test_distance_agrees_with_the_plain_algorithm():
    rng = random.Random(5)
    tokens = sorted({"".join(rng.choice("abcé") for _ in range(rng.randrange(1, 7))) for _ in range(300)})
    for word in ("abc", "é", "abcabc", "cc"):
        for most in range(4):
            found = within_distance(pa.array(tokens), word, most)
            assert [tokens[i] for i in found] == [t for t in tokens if levenshtein(word, t) <= most]


def test_stems_of_a_few_known_words():
    known = {"running": "run", "flies": "fli", "dying": "die", "universal": "universal", "added": "add", "sky": "sky"}
    assert {word: stem(word) for word in known} == known
    assert normalise("x" * 40) is None


TEXTS = ["the queen sails", None, "", "Queens of the sea, the sea", "café", "sails sails", "zebra", "a sea queen"]


def is_same(one: TextIndex, other: TextIndex) -> bool:
    arrays = ("offsets", "rows", "counts", "lengths", "valid")
    same = [getattr(one, name).tolist() == getattr(other, name).tolist() for name in arrays]
    same += [getattr(one, name).dtype == getattr(other, name).dtype for name in arrays]
    return one.tokens.equals(other.tokens) and one.totals == other.totals and all(same)


def test_texts_are_indexed_alike_one_by_one_and_as_a_column(monkeypatch):
    rng = random.Random(3)
    words = ["queen", "Queens", "sea", "the", "café", "ΣΊΣΥΦΟΣ", "x" * 45, "it's", "2024", "İstanbul", "naïve-ly"]
    columns = [TEXTS, [], [None], [""], [None, "the of", "x"]]
    columns += [[" ".join(rng.choices(words, k=rng.randrange(9))) for _ in range(12)] for _ in range(30)]
    for texts in columns:
        column = pa.array(texts, pa.string())
        few = build_text_index(column)
        with monkeypatch.context() as patch:
            patch.setattr(module, "FEW_TEXTS", -1)
            assert is_same(few, build_text_index(column))


def test_indexes_joined_are_the_index_of_all_their_rows():
    whole = build_text_index(pa.array(TEXTS, pa.string()))
    for cut in range(len(TEXTS) + 1):
        for end in range(cut, len(TEXTS) + 1):
            parts = (TEXTS[:cut], TEXTS[cut:end], TEXTS[end:])
            assert is_same(joined([build_text_index(pa.array(part, pa.string())) for part in parts]), whole)


@pytest.mark.parametrize("sizes", [[1] * 300, [200, *[1] * 60], [1, 2, 3] * 40, [30, 1, 60, 2, 90, 3] * 9])
def test_a_group_that_grows_keeps_few_indexes_and_seldom_makes_one_again(sizes):
    rng = random.Random(11)
    words = ["queen", "sea", "sail", "zebra", "harbour", "café"]
    texts = [" ".join(rng.choices(words, k=4)) for _ in range(sum(sizes))]
    parts, made, begin = TextParts(()), 0, 0
    for size in sizes:
        fresh = TextParts((build_text_index(pa.array(texts[begin : begin + size])),))
        grown = parts.followed_by(fresh)
        kept = {id(part) for part in (*parts.parts, *fresh.parts)}
        made += sum(len(part.lengths) for part in grown.parts if id(part) not in kept)
        parts, begin = grown, begin + size
        assert len(parts.parts) <= module.PARTS_MAX
    assert made <= sum(sizes) * math.log2(sum(sizes))
    assert is_same(joined(parts.parts), build_text_index(pa.array(texts)))
    for first, part in parts.numbered():
        assert is_same(part, build_text_index(pa.array(texts[first : first + len(part.lengths)])))


def test_every_token_is_found_and_no_other():
    index = build_text_index(pa.array(["b d é zz", "ab", "b"]))
    assert [index.find(token) for token in index.tokens.to_pylist()] == list(range(len(index.tokens)))
    assert [index.find(word) for word in ("", "a", "bb", "zzz", "~")] == [-1] * 5
    assert build_text_index(pa.array([""])).find("b") == -1
