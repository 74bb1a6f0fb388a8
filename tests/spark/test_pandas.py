"""Spark's pandas and Arrow paths work in a process that asked a graph first."""

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.graph import Graph

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCRIPT = """
import sys
import omnigraph
graph = omnigraph.connect(sys.argv[1])
text = "query q() { match { $a: Person } return { $a.name as name, $a.age as age } order { name } }"
assert graph.query(text).to_pylist() == [{"name": "ana", "age": 5}, {"name": "bo", "age": None}]
from omnigraph.pipeline.session import obtain_session
with obtain_session(master="local[1]") as spark:
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    spark.conf.set("spark.sql.execution.arrow.pyspark.fallback.enabled", "false")
    import pandas as pd
    from pyspark.sql.functions import pandas_udf
    frame = pd.DataFrame({"n": [1.5, None], "at": pd.to_datetime(["2024-01-02", None]), "s": ["x", None]})
    back = spark.createDataFrame(frame).toPandas()
    pd.testing.assert_frame_equal(back.astype(object), frame.astype(object))
    print(list(back.columns), back.isna().sum().tolist())
    plus = pandas_udf(lambda column: column + 1, "double")
    print([row[0] for row in spark.createDataFrame(frame).select(plus("n")).collect()])
    people = graph.spark(spark).nodes("Person")
    print(sorted(people.select("name").toPandas()["name"]))
    doubled = people.select("age").mapInArrow(lambda batches: batches, "age int")
    print([row.age for row in doubled.collect()])
    table = people.select("name", "age").toArrow()
    print(table.num_rows, table.to_pandas()["age"].isna().sum())
"""


def test_pandas_and_arrow_of_spark_work_after_a_first_question(graph: Graph) -> None:
    graph.load([{"type": "Person", "data": {"name": "ana", "age": 5}}, {"type": "Person", "data": {"name": "bo"}}])
    root: Path | str = graph.uri
    command = [sys.executable, "-c", SCRIPT, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "['n', 'at', 's'] [1, 1, 1]",
        "[2.5, None]",
        "['ana', 'bo']",
        "[5, None]",
        "2 1",
    ]
