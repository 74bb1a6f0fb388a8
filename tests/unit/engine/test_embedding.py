"""Embedding providers, without a network: the HTTP ones talk to a server of ours."""

import json
import math
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from omnigraph.engine.embedding import (
    LOCAL_MODEL,
    EmbeddingConfig,
    HttpEmbedder,
    Provider,
    checked,
    make_embedder,
    mock_vector,
)
from omnigraph.errors import InputError, StorageError


def test_the_mock_vector_is_the_one_of_the_specification():
    state = 14695981039346656037
    for byte in b"hi":
        state = ((state ^ byte) * 1099511628211) % 2**64
    raw = []
    for _ in range(3):
        state ^= (state << 13) % 2**64
        state ^= state >> 7
        state ^= (state << 17) % 2**64
        raw.append(state / (2**64 - 1) * 2 - 1)
    norm = math.sqrt(sum(value * value for value in raw))
    assert mock_vector("hi", 3) == pytest.approx([value / norm for value in raw], abs=1e-6)
    assert mock_vector("hi", 3) == make_embedder(EmbeddingConfig(Provider.MOCK)).embed_query("hi", 3)
    assert mock_vector("hi", 3) != mock_vector("ho", 3)


def test_the_default_works_offline_and_puts_like_things_near():
    embedder = make_embedder()
    assert embedder.model == LOCAL_MODEL
    boat, ship, tax = embedder.embed_documents(["a small boat", "a ship at sea", "income tax law"], 256)

    def distance(a, b):
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))

    assert distance(boat, ship) < distance(boat, tax)
    assert math.fsum(value * value for value in boat) == pytest.approx(1.0)
    with pytest.raises(InputError, match="256"):
        embedder.embed_query("x", 3)


@pytest.fixture
def endpoint():
    """A server that answers from a list and remembers what it was asked."""
    answers, asked = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, dict(self.headers), body))
            status, answer = answers.pop(0)
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_):
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers, asked
    server.shutdown()
    server.server_close()
    thread.join()


def config(provider, base, **more):
    return EmbeddingConfig(provider, base_url=base, api_key="secret", retry_backoff_seconds=0.001, **more)


def test_an_openai_compatible_endpoint_is_asked_for_all_texts_at_once(endpoint):
    base, answers, asked = endpoint
    answers.append((200, {"data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3, 4]}]}))
    embedder = make_embedder(config(Provider.OPENAI_COMPATIBLE, base, model="m"))
    assert embedder.embed_documents(["a", "b"], 2) == [(0.6, 0.8), (0.0, 1.0)]
    path, headers, body = asked[0]
    assert path == "/embeddings"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {"model": "m", "input": ["a", "b"], "dimensions": 2}


def test_gemini_is_told_what_the_text_is_for(endpoint):
    base, answers, asked = endpoint
    answers.append((200, {"embedding": {"values": [0, 1]}}))
    embedder = make_embedder(config(Provider.GEMINI, base))
    assert embedder.embed_query("a", 2) == (0.0, 1.0)
    path, headers, body = asked[0]
    assert path == "/models/gemini-embedding-2:embedContent"
    assert {name.lower(): value for name, value in headers.items()}["x-goog-api-key"] == "secret"
    assert (body["taskType"], body["outputDimensionality"]) == ("RETRIEVAL_QUERY", 2)


def test_what_may_pass_is_tried_again_and_what_may_not_is_not(endpoint):
    base, answers, asked = endpoint
    answers.extend([(500, {}), (429, {}), (200, {"data": [{"embedding": [1, 0]}]})])
    embedder = make_embedder(config(Provider.OPENAI, base))
    assert embedder.embed_query("a", 2) == (1.0, 0.0)
    assert len(asked) == 3
    answers.append((401, {}))
    with pytest.raises(StorageError, match="HTTP 401") as caught:
        embedder.embed_query("a", 2)
    assert caught.value.kind == "configuration"
    assert len(asked) == 4
    answers.extend([(503, {})] * 4)
    with pytest.raises(StorageError, match="after 4 attempts"):
        embedder.embed_query("a", 2)


def test_the_deadline_covers_the_retries(endpoint):
    base, answers, asked = endpoint
    answers.extend([(500, {})] * 5)
    slow = EmbeddingConfig(
        Provider.OPENAI, base_url=base, api_key="k", retry_backoff_seconds=0.5, deadline_seconds=0.4, retry_attempts=5
    )
    with pytest.raises(StorageError):
        make_embedder(slow).embed_query("a", 2)
    assert len(asked) == 1


def test_answers_that_are_no_vectors_are_refused(endpoint):
    base, answers, _ = endpoint
    embedder = make_embedder(config(Provider.OPENAI, base))
    answers.append((200, {"data": []}))
    with pytest.raises(StorageError, match="0 vectors for 1 texts"):
        embedder.embed_query("a", 2)
    answers.append((200, {"nope": 1}))
    with pytest.raises(StorageError, match="without 'data'"):
        embedder.embed_query("a", 2)
    for data, complaint in (
        ({"embedding": [1, 0]}, "no list of vectors"),
        ([{"embedding": ["1", 0]}], "no list of numbers"),
        ([{"embedding": "AAAA"}], "no list of numbers"),
        ([[1, 0]], "without 'embedding'"),
    ):
        answers.append((200, {"data": data}))
        with pytest.raises(StorageError, match=complaint) as caught:
            embedder.embed_query("a", 2)
        assert caught.value.kind == "permanent"
    for vector, complaint in (([1.0], "1 numbers"), ([0.0, 0.0], "zero"), ([math.inf, 0.0], "not finite")):
        with pytest.raises(InputError, match=complaint):
            checked(tuple(vector), 2, "m")


@pytest.mark.parametrize("missing", ["", None, math.nan])
@pytest.mark.parametrize("config", [EmbeddingConfig(), EmbeddingConfig(Provider.OPENAI, api_key="k")])
def test_a_text_that_is_missing_is_named_before_the_model_is_asked(config, missing):
    with pytest.raises(InputError, match=r"^text 2 of 3 is (empty|no text but (None|nan)): leave such rows out"):
        make_embedder(config).embed_documents(["one", missing, "three"], 256)


def test_a_provider_without_a_key_says_so_before_it_is_called():
    with pytest.raises(InputError, match="API key"):
        HttpEmbedder(EmbeddingConfig(Provider.OPENAI)).embed_query("a", 2)
    assert "secret" not in repr(config(Provider.OPENAI, "x"))


def test_a_server_that_is_silent_or_gone_is_a_passing_failure_that_is_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        base = f"http://127.0.0.1:{silent.getsockname()[1]}"
        quick = config(Provider.OPENAI, base, timeout_seconds=0.05, retry_attempts=2)
        with pytest.raises(StorageError, match=r"after 2 attempts: .*timed out") as caught:
            make_embedder(quick).embed_query("a", 2)
        assert caught.value.kind == "transient"
    with pytest.raises(StorageError, match="after 2 attempts") as caught:
        make_embedder(quick).embed_query("a", 2)
    assert caught.value.kind == "transient"


def test_one_deadline_covers_all_texts_of_a_call(endpoint):
    base, answers, asked = endpoint
    answers.extend([(200, {"embedding": {"values": [0, 1]}}), *[(500, {})] * 9])
    slow = EmbeddingConfig(
        Provider.GEMINI, base_url=base, api_key="k", retry_backoff_seconds=0.5, deadline_seconds=0.4, retry_attempts=9
    )
    with pytest.raises(StorageError):
        make_embedder(slow).embed_documents(["a", "b"], 2)
    assert len(asked) == 2
