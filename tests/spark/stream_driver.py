"""A driver program of its own: a Structured Streaming query from a folder into a graph, until the folder is read.

python stream_driver.py ROOT INBOX CHECKPOINT
"""

from __future__ import annotations

import sys

from omnigraph import connect
from omnigraph.pipeline.session import obtain_session
from omnigraph.pipeline.streaming import write_stream


def main(root: str, inbox: str, checkpoint: str) -> None:
    settings = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    session = obtain_session(master="local[2]", conf=settings)
    lines = session.readStream.option("maxFilesPerTrigger", "1").text(inbox)
    query = write_stream(
        connect(root).context, lines, name="inbox", checkpoint=checkpoint, trigger={"availableNow": True}
    )
    query.awaitTermination()
    print("read", flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
