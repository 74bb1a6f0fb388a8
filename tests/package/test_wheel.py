"""The wheel has everything in it: installed alone and used far from the repository, it is a working database."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import omnigraph
from omnigraph.examples import community

with omnigraph.create("films.omni", "node Person { name: String @key }  edge Knows: Person -> Person") as graph:
    graph.mutate('query q() { insert Person { name: "ann" } insert Person { name: "bob" } }')
    graph.load([{"from": "ann", "to": "bob"}], type="Knows")
    pairs = "query q() { match { $a: Person  $a knows $b } return { $a.name as a, $b.name as b } }"
    print(graph.query(pairs).to_pylist())
print(omnigraph.__file__)
print(len(community.schema()) > 100)
"""


def _call(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source, built without asking the network."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    _call([*pip, "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)], folder)
    (built,) = folder.glob("omnigraph-*.whl")
    return built


@pytest.mark.long
def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (inside,) = (tmp_path / "env").glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    _call([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], tmp_path)
    # The dependencies are those of the environment the tests run in, behind what was installed: none is downloaded, and
    # the lines of its own .pth files, which may lead to the sources, do not count.
    (inside / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    away = tmp_path / "away"
    away.mkdir()
    rows, place, examples = _call([str(python), "-c", PROGRAM], away).splitlines()
    assert rows == "[{'a': 'ann', 'b': 'bob'}]"
    assert Path(place).is_relative_to(inside)
    assert examples == "True"
    command = python.with_name("omnigraph")
    assert _call([str(command), "version"], away).startswith("omnigraph ")
    assert "ann" in _call([str(command), "export", "films.omni"], away)


@pytest.mark.long
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"omnigraph"}
    package = ROOT / "src" / "omnigraph"
    wanted = {
        str(path.relative_to(ROOT / "src"))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("omnigraph/")} == wanted
    assert [name for name in names if name.endswith("licenses/LICENSE")]
