"""A real S3 server on loopback, run from an environment of its own because its packages pin others than ours."""

import fcntl
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("moto[s3]==5.2.5", "flask", "flask-cors")
HOME = Path(__file__).parents[2] / ".cache" / "s3-server"
SERVER = Path(__file__).with_name("one_at_a_time.py")
BUCKET = "graphs"
START_SECONDS_MAX = 60.0


def _python() -> Path:
    """The interpreter that has the server, installed on first use by whichever test process comes first."""
    program = HOME / "bin" / "moto_server"
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "s3-server.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True, timeout=120)
            pip = [str(HOME / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            subprocess.run([*pip, *PACKAGES], check=True, timeout=600)
    return HOME / "bin" / "python"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def storage_options(endpoint: str) -> dict[str, str]:
    """How both Lance and the object store reach the server."""
    return {
        "aws_endpoint": endpoint,
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with one empty bucket; yields its address."""
    port = _free_port()
    command = [str(_python()), str(SERVER), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _wait_for(endpoint, server)
            yield endpoint
        finally:
            server.terminate()
            server.wait(timeout=20)
