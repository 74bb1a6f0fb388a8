"""The operator's configuration file."""

from pathlib import Path

import pytest

from omnigraph.cli.config import Defaults, OperatorConfig, load_config, operator_home, parse_config
from omnigraph.errors import InputError


def test_the_home_folder_is_the_default_and_the_variable_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert operator_home({}) == Path("/somewhere/.omnigraph")
    assert operator_home({"OMNIGRAPH_HOME": " "}) == Path("/somewhere/.omnigraph")
    assert operator_home({"OMNIGRAPH_HOME": "~/mine"}) == Path("/somewhere/mine")


def test_a_missing_file_is_an_empty_configuration(tmp_path: Path) -> None:
    assert load_config(tmp_path) == OperatorConfig()
    (tmp_path / "config.yaml").write_text("")
    assert load_config(tmp_path) == OperatorConfig()


def test_every_setting_is_read() -> None:
    config = parse_config(
        """
        operator: { actor: act-ana }
        servers: { prod: { url: https://graph.example.com } }
        defaults: { output: kv, table_max_column_width: 20, table_cell_layout: wrap, store: ./dev.omni }
        profiles: { dev: { store: ./dev.omni } }
        """,
        origin="config.yaml",
    )
    assert config.actor == "act-ana"
    assert config.defaults == Defaults("kv", 20, "wrap", store="./dev.omni")
    assert config.profiles["dev"] == {"store": "./dev.omni"}
    assert config.warnings == ()


def test_unknown_keys_are_warned_about_and_ignored() -> None:
    config = parse_config("shiny: 1\noperator: {mood: good}\ndefaults: {colour: red}\n", origin="c.yaml")
    assert config.defaults == Defaults()
    assert [warning.split("'")[3] for warning in config.warnings] == ["shiny", "operator.mood", "defaults.colour"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not valid YAML"),
        ("- a\n", "key and value pairs"),
        ("defaults: 3", "defaults"),
        ("defaults: {output: xml}", "xml"),
        ("defaults: {table_max_column_width: wide}", "positive number"),
        ("defaults: {table_max_column_width: true}", "positive number"),
        ("defaults: {table_cell_layout: fold}", "fold"),
        ("defaults: {store: a, server: b}", "both"),
        ("operator: {actor: 7}", "operator.actor"),
    ],
)
def test_a_malformed_file_is_one_sentence_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        load_config(tmp_path)
    assert str(tmp_path / "config.yaml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(InputError, match="cannot read the configuration"):
        load_config(tmp_path)
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_config(tmp_path / "binary")
