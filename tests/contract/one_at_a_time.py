"""The S3 server of the tests, in whose environment this runs: `python one_at_a_time.py PORT`.

S3 promises that of two who create one object one is refused. The server looks for the object first and writes it after,
in as many threads as there are requests, so that on a busy machine both were told that they had created it. Requests
that change something are therefore answered one after the other.
"""

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

READS = ("GET", "HEAD")


class OneAtATime:
    """An application whose requests that change something wait for each other."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._turn = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in READS:
            return self._application(environ, start_response)
        with self._turn:
            return self._application(environ, start_response)


if __name__ == "__main__":
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
