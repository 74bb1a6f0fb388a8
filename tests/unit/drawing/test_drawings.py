"""What is drawn of a graph, what is left out and told, and that a picture stands for itself."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import ExecutionError, InputError

SVG = "{http://www.w3.org/2000/svg}"
SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob?  v: Vector(2)? }
node Town { name: String @key  title: String? }
node Note { title: String?  text: String? }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> Town @card(0..1)
edge Of: Note -> Person
"""


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    """A chain of people a - b - c - d, ann with a loop and a parallel edge, a town, notes without a key."""
    graph = omnigraph.create(tmp_path / "g.omni", schema=SCHEMA)
    graph.load(
        [{"name": name, "age": age} for age, name in enumerate(["ann", "bob", "cyd", "dan", "eve"])], type="Person"
    )
    graph.load([{"name": "rome", "title": "Roma"}], type="Town")
    ends = [("ann", "bob"), ("ann", "bob"), ("bob", "ann"), ("bob", "cyd"), ("cyd", "dan"), ("ann", "ann")]
    graph.load([{"from": a, "to": b, "since": 2000 + n} for n, (a, b) in enumerate(ends)], type="Knows")
    graph.load([{"from": "ann", "to": "rome"}], type="LivesIn")
    note = graph.mutate('query q() { insert Note { title: "a title" } }').ids[0].ids[0]
    graph.load([{"from": note, "to": "dan"}], type="Of")
    return graph


def names(drawing: omnigraph.Drawing) -> set[str]:
    return {key for _, key in drawing.nodes}


def texts(svg: str) -> list[str]:
    """What a reader reads, without what only the pointer brings up."""
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_neighbourhood_is_what_is_that_near_in_either_direction(graph: omnigraph.Graph) -> None:
    assert names(graph.draw({"Person": ["cyd"]}, hops=0)) == {"cyd"}
    assert names(graph.draw({"Person": ["cyd"]})) == {"bob", "cyd", "dan"}
    assert names(graph.draw(nodes={"Person": ["ann"]})) == {"ann", "bob", "rome"}
    assert names(graph.draw(nodes={"Person": ["ann"]}, edges=["LivesIn"], hops=5)) == {"ann", "rome"}
    # The same as graph libraries are given.
    near = graph.to_networkx(nodes={"Person": ["bob"]}, hops=2)
    drawing = graph.draw({"Person": ["bob"]}, hops=2)
    assert sorted(drawing.nodes) == sorted(near.nodes)
    assert sum(edge.count for edge in drawing.part.edges) == near.number_of_edges()


def test_a_query_says_where_to_begin(graph: omnigraph.Graph) -> None:
    pairs = "query q($a: I32) { match { $p: Person $p.age < $a $p knows $q } return { $q.age as x, $p.age } limit 1 }"
    assert names(graph.draw(pairs, {"a": 1}, hops=0)) <= {"ann", "bob"}
    both = (
        "query one() { match { $p: Person } return { $p.id } }\nquery two() { match { $t: Town } return { $t.name } }"
    )
    assert names(graph.draw(both, name="two", hops=0)) == {"rome"}
    distinct = "query q() { match { $p: Person } return distinct { $p.age } order { $p.age desc } limit 2 // { }\n}"
    assert names(graph.draw(distinct, hops=0)) == {"eve", "dan"}
    maybe = 'query q() { match { $p: Person { name: "ann" } optional { $p livesIn $t } } return { $t.name } }'
    assert names(graph.draw(maybe, hops=0)) == {"rome"}
    for bad in (
        "query q() { match { $p: Person } return { count($p) as n } }",
        "query q() { match { $p: Person } return { 1 as x } }",
    ):
        with pytest.raises(InputError, match=r"such as \$p.id"):
            graph.draw(bad)
    with pytest.raises(ExecutionError, match="changes the graph"):
        graph.draw("query q() { delete Person where true }")


def test_arrows_say_the_direction_and_edges_beside_each_other_are_counted(graph: omnigraph.Graph) -> None:
    drawing = graph.draw({"Person": ["ann"]}, edges=["Knows"])
    found = {(drawing.nodes[e.source][1], drawing.nodes[e.target][1]): e.count for e in drawing.part.edges}
    assert found == {("ann", "bob"): 2, ("bob", "ann"): 1, ("ann", "ann"): 1}
    shown = texts(drawing.to_svg())
    assert "Knows ×2" in shown
    assert {"ann", "bob", "Person  2", "Knows  4"} <= set(shown)
    assert drawing.to_svg().count('class="tip') == 3 + 1


def test_nodes_are_called_by_their_key_their_name_or_what_was_asked_for(graph: omnigraph.Graph) -> None:
    assert "a title" in texts(graph.draw({"Person": ["dan"]}).to_svg())
    assert "Roma" in texts(graph.draw({"Town": ["rome"]}, labels={"Town": "title"}).to_svg())
    graph.mutate('query q() { insert Note { text: "x" } }')
    last = graph.query('query q() { match { $n: Note { text: "x" } } return { $n.id as id } }').to_pylist()[0]["id"]
    assert f"…{last[-6:]}" in texts(graph.draw({"Note": [last]}).to_svg())


def test_no_more_is_drawn_than_fits_and_the_rest_is_counted(graph: omnigraph.Graph) -> None:
    graph.load({"Person": pa.table({"name": [f"p{n:03d}" for n in range(300)]})})
    graph.load({"Knows": pa.table({"from": [f"p{n:03d}" for n in range(300)], "to": ["ann"] * 300})})
    drawing = graph.draw({"Person": ["ann"]}, nodes_max=20)
    assert len(drawing.nodes) == 20
    assert {"ann", "bob", "rome"} <= names(drawing), "each edge type has its turn"
    assert drawing.left_out == ("283 more Person along Knows ←",)
    assert "not drawn: 283 more Person along Knows ←" in texts(drawing.to_svg())
    assert "not drawn: 283 more" in repr(drawing)
    many = graph.draw("query q() { match { $p: Person } return { $p.id } }", nodes_max=10)
    assert len(many.nodes) == 10
    assert many.left_out[0] == "295 more Person to begin with"
    further = graph.draw({"Person": ["dan"]}, hops=9, nodes_max=8)
    assert further.left_out[0] == "everything further than 4 steps"
    sample = graph.draw()
    assert len(sample.nodes) == 100
    assert sample.left_out == ("the rest of 307 nodes, of which this is a sample",)


def test_a_small_graph_is_drawn_whole(graph: omnigraph.Graph) -> None:
    drawing = graph.draw()
    assert names(drawing) >= {"ann", "bob", "cyd", "dan", "eve", "rome"}
    assert drawing.left_out == ()
    assert len(drawing.nodes) == 7


def test_what_is_not_there_is_said(graph: omnigraph.Graph) -> None:
    drawing = graph.draw({"Person": ["zoe"]})
    assert drawing.nodes == []
    assert texts(drawing.to_svg()) == ["there is nothing to draw", "not drawn: Person zoe: there is none"]
    for call, says in (
        (lambda: graph.draw({"Cat": ["x"]}), "no node type 'Cat'"),
        (lambda: graph.draw(edges=["Likes"]), "no edge type 'Likes'"),
        (lambda: graph.draw(labels={"Person": "photo"}), "no property 'photo'"),
        (lambda: graph.draw(nodes_max=501), "between 1 and 500"),
        (lambda: graph.draw("query q() { match { $p: Person } return { $p.id } }", nodes={"Person": []}), "two ways"),
    ):
        with pytest.raises(InputError, match=says):
            call()


def test_the_past_is_drawn_as_it_was(graph: omnigraph.Graph) -> None:
    before = graph.snapshot().head
    graph.mutate('query q() { delete Person where name = "bob" }')
    assert "bob" not in names(graph.draw({"Person": ["ann"]}))
    assert "bob" in names(graph.draw({"Person": ["ann"]}, at=before))


def test_nothing_of_a_value_is_markup(graph: omnigraph.Graph) -> None:
    nasty = '</text><script>alert(1)</script>" onload="x" & \x01\x1b ]]>\u202e'
    graph.load([{"name": nasty}, {"name": "日本語の名前"}, {"name": "x" * 500}], type="Person")
    graph.load([{"from": nasty, "to": "ann"}], type="Knows")
    drawing = graph.draw({"Person": [nasty]})
    tree = ET.fromstring(drawing.to_svg())
    assert {each.tag.removeprefix(SVG) for each in tree.iter()} <= {
        "svg",
        "style",
        "rect",
        "g",
        "title",
        "path",
        "text",
    }
    assert not any(name.startswith("on") for each in tree.iter() for name in each.attrib)
    assert "<script" not in drawing.to_html()
    assert "\u202e" not in drawing.to_svg()
    assert max(map(len, texts(graph.draw().to_svg()))) < 120


def test_files_need_nothing_beside_them(graph: omnigraph.Graph, tmp_path: Path) -> None:
    drawing = graph.draw({"Person": ["ann"]})
    drawing.save(tmp_path / "part.svg")
    drawing.save(str(tmp_path / "part.html"))
    svg, page = (tmp_path / "part.svg").read_text("utf-8"), (tmp_path / "part.html").read_text("utf-8")
    assert svg == drawing.to_svg() == graph.draw({"Person": ["ann"]}).to_svg(), "the same picture every time"
    assert svg in page
    assert "default-src 'none'" in page
    outside = re.findall(r"\b(?:href|src)\s*=|url\(|@import", page)
    assert outside == []
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert str(tmp_path) not in page
    assert drawing._repr_html_() == svg
    with pytest.raises(InputError, match=r"\.svg or \.html"):
        drawing.save(tmp_path / "part.png")
    with pytest.raises(InputError, match="cannot write"):
        drawing.save(tmp_path / "nowhere" / "part.svg")


def test_a_diagram_lists_properties_as_the_schema_does_behind_the_key(tmp_path: Path) -> None:
    schema = "node Film { year: I32  title: String @key  plot: String? }"
    with omnigraph.create(tmp_path / "g.omni", schema=schema) as graph:
        shown = [text for text in texts(graph.schema.to_svg()) if text in ("year", "title", "plot")]
        assert shown == ["title", "year", "plot"]


def test_a_schema_is_a_diagram_of_its_types(graph: omnigraph.Graph) -> None:
    svg = graph.schema._repr_svg_()
    shown = texts(svg)
    assert {"Person", "Town", "Note", "name", "age", "Blob?", "Vector(2)?", "Knows", "LivesIn 0..1", "Of"} <= set(shown)
    tree = ET.fromstring(svg)
    assert len([each for each in tree.iter(f"{SVG}rect") if "box" in each.get("class", "")]) == 3
    assert len([each for each in tree.iter(f"{SVG}path") if "tip" in each.get("class", "")]) == 3
    titles = [each.text or "" for each in tree.iter(f"{SVG}title")]
    assert any(text.startswith("Knows: Person → Person\nsince: I32?") for text in titles)


def test_a_type_with_many_properties_lists_some_and_counts_the_others(tmp_path: Path) -> None:
    fields = "\n".join(f"p{n:02d}: I32?" for n in range(30))
    with omnigraph.create(tmp_path / "g.omni", schema=f"node Wide {{ name: String @key\n{fields} }}") as graph:
        assert "17 more" in texts(graph.schema.to_svg())
        assert "name" in texts(graph.schema.to_svg())
