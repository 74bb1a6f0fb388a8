"""Vectors from a provider.

An `Embedder` turns texts into unit-length vectors of the dimension a property asks for. `make_embedder` builds one from
a configuration that somebody else read: `local` works offline inside the process, `mock` is deterministic and for
tests, the others speak HTTP. Nothing is loaded or contacted before the first text arrives.
"""

from __future__ import annotations

import json
import logging
import math
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from omnigraph.errors import InputError, StorageError

Vector = tuple[float, ...]
LOCAL_MODEL = "omnigraph/wordllama-256"
LOCAL_DIMENSION = 256
MOCK_MODEL = "omnigraph/mock"


class Provider(StrEnum):
    """Who makes the vectors."""

    LOCAL = "local"
    MOCK = "mock"
    OPENAI_COMPATIBLE = "openai-compatible"
    OPENAI = "openai"
    GEMINI = "gemini"


@dataclass(frozen=True)
class EmbeddingConfig:
    """One resolved configuration. Surfaces fill it from the environment or a cluster; the engine only takes it."""

    provider: Provider = Provider.LOCAL
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    deadline_seconds: float = 60.0
    """For a whole call, retries included; 0 means none."""
    timeout_seconds: float = 30.0
    retry_attempts: int = 4
    retry_backoff_seconds: float = 0.2


class Purpose(StrEnum):
    """Whether a text asks or is asked for; some models embed the two differently."""

    QUERY = "RETRIEVAL_QUERY"
    DOCUMENT = "RETRIEVAL_DOCUMENT"


class Embedder(Protocol):
    """Texts to vectors, by one model."""

    @property
    def model(self) -> str:
        """The model's name, as `@embed(…, model=…)` would give it."""
        ...

    def embed_query(self, text: str, dimension: int) -> Vector:
        """The vector of a text that asks."""
        ...

    def embed_documents(self, texts: Sequence[str], dimension: int) -> list[Vector]:
        """The vectors of texts that are stored."""
        ...


_DEFAULTS = {
    Provider.OPENAI_COMPATIBLE: ("https://openrouter.ai/api/v1", "openai/text-embedding-3-large"),
    Provider.OPENAI: ("https://api.openai.com/v1", "text-embedding-3-large"),
    Provider.GEMINI: ("https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2"),
}


def make_embedder(config: EmbeddingConfig | None = None) -> Embedder:
    """The embedder a configuration describes; without one, the offline default."""
    config = config or EmbeddingConfig()
    match config.provider:
        case Provider.LOCAL:
            return LocalEmbedder()
        case Provider.MOCK:
            return MockEmbedder(config.model or MOCK_MODEL)
        case _:
            return HttpEmbedder(config)


# --- inside the process -----------------------------------------------------------------------------------------------


class MockEmbedder:
    """Deterministic vectors that depend on nothing but the text: for tests."""

    def __init__(self, model: str = MOCK_MODEL) -> None:
        self.model = model

    def embed_query(self, text: str, dimension: int) -> Vector:
        """A pseudo-random unit vector seeded by the text."""
        return mock_vector(text, dimension)

    def embed_documents(self, texts: Sequence[str], dimension: int) -> list[Vector]:
        """The same vectors as for queries."""
        return [mock_vector(text, dimension) for text in texts]


def mock_vector(text: str, dimension: int) -> Vector:
    """FNV-1a of the text seeds a xorshift generator; its numbers, scaled to -1…1, are normalised."""
    mask = (1 << 64) - 1
    state = 14695981039346656037
    for byte in text.encode():
        state = ((state ^ byte) * 1099511628211) & mask
    values = []
    for _ in range(dimension):
        state ^= (state << 13) & mask
        state ^= state >> 7
        state ^= (state << 17) & mask
        values.append(_f32(_f32(_f32(state / mask) * 2) - 1))
    norm = _f32(math.sqrt(math.fsum(value * value for value in values)))
    return tuple(_f32(value / norm) for value in values) if norm else tuple(values)


def _f32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Keep a package that configures logging when it is imported from doing so.

    `logging.basicConfig` does nothing where the root logger has a handler, so it has one meanwhile.
    """
    root, placeholder = logging.getLogger(), logging.NullHandler()
    root.addHandler(placeholder)
    try:
        yield
    finally:
        root.removeHandler(placeholder)


class LocalEmbedder:
    """Static word vectors shipped with the `wordllama` package: no network, no model server."""

    model = LOCAL_MODEL

    def __init__(self) -> None:
        self._loaded: Any = None
        self._lock = threading.Lock()

    def embed_query(self, text: str, dimension: int) -> Vector:
        """The vector of a text that asks."""
        return self._embed([text], dimension)[0]

    def embed_documents(self, texts: Sequence[str], dimension: int) -> list[Vector]:
        """The vectors of texts that are stored.

        Raises:
            InputError: the property is not of the model's dimension, the model is not installed, or a text is missing.
        """
        _require_texts(texts)
        return self._embed(texts, dimension)

    def _embed(self, texts: Sequence[str], dimension: int) -> list[Vector]:
        if dimension != LOCAL_DIMENSION:
            raise InputError(
                f"model '{LOCAL_MODEL}' makes vectors of {LOCAL_DIMENSION} numbers, and the property has {dimension}:"
                f" declare Vector({LOCAL_DIMENSION}), or configure another provider"
            )
        # Brought to unit length by `checked`, which refuses what has no direction instead of dividing by zero.
        made = self._model().embed(list(texts), norm=False)
        return [checked(tuple(float(value) for value in row), dimension, self.model) for row in made]

    def _model(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    @staticmethod
    def _load() -> Any:
        with _logging_left_alone():
            try:
                import wordllama
            except ImportError as exc:
                raise InputError(
                    "the offline embedding model is not installed: pip install 'omnigraph[embed]', or configure a"
                    " provider"
                ) from exc
        # The wheel carries its model, so its own folder is the cache and nothing needs to be fetched.
        folder = Path(wordllama.__file__).parent
        return wordllama.WordLlama.load(
            config="l2_supercat", cache_dir=folder, dim=LOCAL_DIMENSION, disable_download=True
        )


# --- over HTTP --------------------------------------------------------------------------------------------------------

Send = Callable[[Request, float], bytes]


def _send(request: Request, timeout_seconds: float) -> bytes:
    with urlopen(request, timeout=timeout_seconds) as response:
        return bytes(response.read())


class HttpEmbedder:
    """An OpenAI-compatible or Gemini endpoint; retries what may pass, and gives up at the deadline."""

    def __init__(self, config: EmbeddingConfig, *, send: Send = _send, sleep: Callable[[float], None] = time.sleep):
        base, model = _DEFAULTS[config.provider]
        self.model = config.model or model
        self._config = config
        self._base = (config.base_url or base).rstrip("/")
        self._send = send
        self._sleep = sleep

    def embed_query(self, text: str, dimension: int) -> Vector:
        """The vector of a text that asks."""
        return self._embed([text], dimension, Purpose.QUERY)[0]

    def embed_documents(self, texts: Sequence[str], dimension: int) -> list[Vector]:
        """The vectors of texts that are stored.

        Raises:
            InputError: a text is missing, or no API key is configured.
        """
        _require_texts(texts)
        return self._embed(list(texts), dimension, Purpose.DOCUMENT)

    def _embed(self, texts: list[str], dimension: int, purpose: Purpose) -> list[Vector]:
        if not self._config.api_key:
            raise InputError(f"embedding provider '{self._config.provider}' needs an API key, and none is configured")
        deadline = time.monotonic() + (self._config.deadline_seconds or math.inf)
        if self._config.provider is Provider.GEMINI:
            found = [self._gemini(text, dimension, purpose, deadline) for text in texts]
        else:
            found = self._openai(texts, dimension, deadline)
        return [checked(_numbers(vector), dimension, self.model) for vector in found]

    def _openai(self, texts: list[str], dimension: int, deadline: float) -> list[Any]:
        body = {"model": self.model, "input": texts, "dimensions": dimension}
        headers = {"Authorization": f"Bearer {self._config.api_key}"}
        entries = _field(self._post(f"{self._base}/embeddings", body, headers, deadline), "data")
        if not isinstance(entries, list):
            raise StorageError("embedding provider answered no list of vectors", kind="permanent")
        # Some answer without saying which text a vector is for; then they stand in the order of the texts.
        if all(isinstance(entry, dict) and isinstance(entry.get("index"), int) for entry in entries):
            entries = sorted(entries, key=lambda entry: entry["index"])
        if len(entries) != len(texts):
            raise StorageError(
                f"embedding provider answered {len(entries)} vectors for {len(texts)} texts", kind="permanent"
            )
        return [_field(entry, "embedding") for entry in entries]

    def _gemini(self, text: str, dimension: int, purpose: Purpose, deadline: float) -> Any:
        body = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": purpose.value,
            "outputDimensionality": dimension,
        }
        headers = {"x-goog-api-key": self._config.api_key or ""}
        answer = self._post(f"{self._base}/models/{self.model}:embedContent", body, headers, deadline)
        return _field(_field(answer, "embedding"), "values")

    def _post(self, url: str, body: dict[str, Any], headers: dict[str, str], deadline: float) -> Any:
        request = Request(
            url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}, method="POST"
        )
        pause = self._config.retry_backoff_seconds
        for attempt in range(1, self._config.retry_attempts + 1):
            left = deadline - time.monotonic()
            try:
                return json.loads(self._send(request, min(self._config.timeout_seconds, max(left, 0.001))))
            except json.JSONDecodeError as exc:
                raise StorageError(f"embedding provider at {self._base} did not answer JSON", kind="permanent") from exc
            except (OSError, HTTPException) as exc:
                if not _may_pass(exc) or attempt == self._config.retry_attempts:
                    raise _failure(exc, self._base, attempt) from exc
                if time.monotonic() + pause >= deadline:
                    raise _failure(exc, self._base, attempt) from exc
            self._sleep(pause)
            pause *= 2
        raise InputError("retry_attempts of the embedding configuration must be at least 1")


def _may_pass(exc: Exception) -> bool:
    """Too many requests, server errors, timeouts and lost connections; a refusal stays a refusal."""
    return not isinstance(exc, HTTPError) or exc.code == 429 or exc.code >= 500


def _failure(exc: Exception, base: str, attempts: int) -> StorageError:
    what = f"HTTP {exc.code}" if isinstance(exc, HTTPError) else str(exc) or type(exc).__name__
    kind = "transient" if _may_pass(exc) else "configuration"
    tries = "" if attempts == 1 else f" after {attempts} attempts"
    return StorageError(f"embedding provider at {base} failed{tries}: {what}", kind=kind)


def _field(answer: Any, name: str) -> Any:
    if not isinstance(answer, dict) or name not in answer:
        raise StorageError(f"embedding provider answered without '{name}'", kind="permanent")
    return answer[name]


def _numbers(vector: Any) -> Vector:
    if not isinstance(vector, list) or not all(isinstance(value, int | float) for value in vector):
        raise StorageError("embedding provider answered a vector that is no list of numbers", kind="permanent")
    return tuple(float(value) for value in vector)


def _require_texts(texts: Sequence[str]) -> None:
    """Refuse what has no vector before a model is asked, for it would not say which of many texts that is."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text:
            what = "empty" if text == "" else f"no text but {text!r}"
            raise InputError(f"text {number} of {len(texts)} is {what}: leave such rows out, their vectors stay null")


def checked(vector: Vector, dimension: int, model: str) -> Vector:
    """The vector at unit length.

    Raises:
        InputError: it has another dimension, is zero, or is not finite.
    """
    if len(vector) != dimension:
        raise InputError(f"model '{model}' made a vector of {len(vector)} numbers where {dimension} are needed")
    norm = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(norm) or norm == 0:
        raise InputError(f"model '{model}' made a vector that is {'zero' if norm == 0 else 'not finite'}")
    return tuple(value / norm for value in vector)
