"""Pandas and pyarrow do for a program what they did before, whatever is imported first."""

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.graph import create

WITHOUT = "import pyarrow, pyarrow.dataset"
"""What a program loads that does not know this package."""

ASK = """
import omnigraph
with omnigraph.connect({root!r}) as graph:
    assert graph.query("query q() {{ match {{ $a: Person }} return {{ $a.age as age }} }}").to_pylist() == []
"""

PLAIN = """
import datetime
import pyarrow as pa
def told(act):
    try:
        value = act()
    except Exception as error:
        return type(error).__name__
    return f"{type(value).__module__}.{type(value).__qualname__} {value}"
for act in (
    lambda: pa.scalar(1, pa.timestamp("ns")).as_py(),
    lambda: pa.scalar(1_000, pa.timestamp("ns", "Europe/Rome")).as_py(),
    lambda: pa.scalar(1, pa.duration("ns")).as_py(),
    lambda: pa.array([1, None], pa.timestamp("ns")).to_pylist(),
    lambda: pa.scalar(True),
    lambda: pa.array([True, None, 1.5]),
    lambda: pa.array([1.5, float("nan")], from_pandas=True).null_count,
    lambda: pa.array([datetime.timedelta(1)]).type,
    lambda: pa.lib.scalar is pa.scalar and pa.lib.scalar.__name__,
    lambda: pa.lib._pandas_api.have_pandas,
    lambda: pa.dataset.field("a") == True,
):
    print(told(act))
"""
"""Conversions of values that are not of pandas, some of which pyarrow turns into values of pandas."""

WITH_PANDAS = """
import pandas as pd
series = pd.Series([1.5, None, 3])
frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])}, index=[5, 6])
for act in (
    lambda: pa.array(series).to_pylist(),
    lambda: pa.array(pd.Index([1, 2])).type,
    lambda: pa.scalar(pd.Timestamp(5)).type,
    lambda: pa.array([pd.Timestamp(5), pd.NaT, pd.NA]).to_pylist(),
    lambda: pa.array([pd.Timedelta(5), None]).type,
    lambda: pa.array(pd.Categorical(["a", "b", "a"])).type,
    lambda: pa.array(pd.date_range("2024-01-01", periods=2, tz="Europe/Rome")).type,
    lambda: pa.array(pd.arrays.IntegerArray(series.fillna(0).astype(int).to_numpy(), series.isna().to_numpy())),
    lambda: pa.Table.from_pandas(frame).schema,
    lambda: pa.table(frame)["b"].to_pylist(),
    lambda: pa.table(frame).to_pandas(),
    lambda: pa.table(frame).to_pandas().dtypes,
    lambda: pa.array([1, None], pa.timestamp("ns")).to_pandas(),
    lambda: pa.array(["a", None]).to_numpy(zero_copy_only=False),
    lambda: pa.Schema.from_pandas(frame).names,
):
    print(told(act))
"""


def said(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> str:
    root: Path = tmp_path_factory.mktemp("start") / "graph"
    create(root, "node Person { name: String @key  age: I32? }")
    return ASK.format(root=str(root))


@pytest.fixture(scope="module")
def usual() -> list[str]:
    """What a program without this package is told."""
    found = said("\n".join([WITHOUT, PLAIN, WITH_PANDAS]))
    assert found[0] == "pandas._libs.tslibs.timestamps.Timestamp 1970-01-01 00:00:00.000000001"
    return found


ORDERS = {
    "asked first": "{ask}",
    "pandas before": "import pandas\n{ask}",
    "pandas after, before the first conversion": "{ask}\nimport pandas",
    "pyarrow before": "import pyarrow\n{ask}",
    "conversions before": "import pyarrow\npyarrow.array([1])\n{ask}",
    "datasets before": "import pyarrow.dataset\n{ask}",
    "lance before": "import lance\n{ask}",
    "between two questions": "{ask}\nimport pyarrow, pandas\npyarrow.array(pandas.Series([1]))\n{ask}",
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_program_is_told_the_same_in_every_order_of_imports(order: str, ask: str, usual: list[str]) -> None:
    assert said("\n".join([ORDERS[order].format(ask=ask), PLAIN, WITH_PANDAS])) == usual


def test_a_program_that_never_imports_pandas_still_gets_its_values(ask: str, usual: list[str]) -> None:
    plain = said(f"{ask}\n{PLAIN}")
    assert plain == usual[: len(plain)]
    assert len(plain) == 11


def test_without_pandas_nothing_is_different_either(ask: str) -> None:
    missing = (
        "import sys\nclass Missing:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\nsys.meta_path.insert(0, Missing())"
    )
    found = said(f"{missing}\n{ask}\n{PLAIN}")
    assert found == said(f"{missing}\n{WITHOUT}\n{PLAIN}")
    assert found[0] == "ValueError"


def test_pandas_imported_by_another_thread_meanwhile_is_found(ask: str, usual: list[str]) -> None:
    other = "import threading\nthread = threading.Thread(target=lambda: __import__('pandas'))\nthread.start()"
    assert said("\n".join([other, ask, "thread.join()", PLAIN, WITH_PANDAS])) == usual
    late = "import sys, threading\nthread = threading.Thread(target=lambda: __import__('pandas'))\n"
    hook = (
        "class Begin:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pyarrow._dataset' and not thread.ident: thread.start()\nsys.meta_path.insert(0, Begin())"
    )
    assert said("\n".join([late, hook, ask, "thread.join()", PLAIN, WITH_PANDAS])) == usual


def test_another_thread_converts_rightly_while_datasets_are_loaded(ask: str) -> None:
    script = f"""
import sys, threading
import pyarrow as pa
sys.setswitchinterval(1e-6)
wrong, rounds, done = [], [], threading.Event()
def convert():
    while not done.is_set():
        rounds.append(1)
        scalar = pa.lib.scalar
        found = (scalar(True), pa.scalar(True), scalar(True, pa.bool_()), scalar(5, type=pa.int8()))
        if [(each.as_py(), str(each.type)) for each in found] != [(True, "bool")] * 3 + [(5, "int8")]:
            wrong.append(found)
threads = [threading.Thread(target=convert) for _ in range(3)]
for thread in threads: thread.start()
{ask}
done.set()
for thread in threads: thread.join()
print(wrong, len(rounds) > 10, pa.lib.scalar is pa.scalar)
"""
    assert said(script) == ["[] True True"]
