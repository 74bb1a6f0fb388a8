"""The public face: the names other programs are written against."""

import inspect

import omnigraph
from omnigraph import errors
from omnigraph.graph import Graph


def parameters(function: object) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]


def test_every_listed_name_is_there() -> None:
    assert [name for name in omnigraph.__all__ if not hasattr(omnigraph, name)] == []
    assert dir(omnigraph) == sorted(omnigraph.__all__), "what completion offers is what is public"


def test_every_error_is_public() -> None:
    classes = {name for name, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, Exception)}
    assert classes - set(omnigraph.__all__) == set()
    assert all(issubclass(getattr(omnigraph, name), omnigraph.GraphError) for name in classes)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(omnigraph, "no_such_name")


def test_opening_has_the_promised_parameters() -> None:
    assert parameters(omnigraph.create)[:2] == ["uri", "schema"]
    assert parameters(omnigraph.connect)[:2] == ["uri", "read_only"]


def test_a_graph_has_the_promised_verbs() -> None:
    assert parameters(Graph.load)[:5] == ["source", "mode", "branch", "engine", "actor"]
    assert parameters(Graph.query)[:5] == ["source", "params", "name", "branch", "at"]
    assert parameters(Graph.mutate)[:5] == ["source", "params", "name", "branch", "actor"]
    assert parameters(Graph.snapshot) == ["branch", "at"]
    assert parameters(Graph.export)[:3] == ["path", "branch", "at"]
    assert parameters(Graph.refresh) == []
    assert parameters(Graph.close) == []


def test_the_groups_have_the_promised_verbs() -> None:
    graph = Graph.__new__(Graph)
    from omnigraph.verbs import BranchVerbs, HistoryVerbs, MaintenanceVerbs, SchemaVerbs

    assert parameters(BranchVerbs(graph).create)[:2] == ["name", "from_"]
    assert parameters(BranchVerbs(graph).list) == []
    assert parameters(BranchVerbs(graph).delete)[:1] == ["name"]

    assert parameters(HistoryVerbs(graph).list)[:3] == ["branch", "limit", "actor"]
    assert parameters(HistoryVerbs(graph).show) == ["commit_id"]
    assert isinstance(inspect.getattr_static(SchemaVerbs, "source"), property)
    assert parameters(SchemaVerbs(graph).plan)[0] == "desired"
    assert parameters(SchemaVerbs(graph).apply)[0] == "desired"
    for verb in ("optimize", "cleanup", "repair", "verify"):
        assert callable(getattr(MaintenanceVerbs, verb))


def test_results_have_the_promised_names() -> None:
    for name in ("to_arrow", "to_pylist", "to_pandas", "__len__", "__iter__", "__repr__", "_repr_html_"):
        assert callable(getattr(omnigraph.QueryResult, name))
    assert isinstance(inspect.getattr_static(omnigraph.QueryResult, "columns"), property)
    assert {"affected_nodes", "affected_edges", "commit_id"} <= set(omnigraph.MutationResult.__dataclass_fields__)
    assert {"commit_id", "engine", "seconds"} <= set(omnigraph.LoadResult.__dataclass_fields__)
    assert isinstance(inspect.getattr_static(omnigraph.LoadResult, "rows"), property)
