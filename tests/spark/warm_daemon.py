"""The process that forks Spark's Python workers, with everything imported that they would each import anew.

A worker is as fresh as ever otherwise: nothing of storage is used here, because Lance survives a fork only unused.
"""

import gc
import importlib
import pkgutil
import warnings

import pandas
import pyarrow.compute
import pyarrow.dataset
from pyspark.daemon import manager

import omnigraph.pipeline

__all__ = ["pandas", "pyarrow"]

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    for found in pkgutil.iter_modules(omnigraph.pipeline.__path__, "omnigraph.pipeline."):
        importlib.import_module(found.name)
    gc.collect()
    gc.freeze()
    manager()
