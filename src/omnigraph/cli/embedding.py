"""The embedding provider that the environment asks for.

Nothing set means the small model inside the process. A key is never written down anywhere: it is taken from the
variable of its provider when a graph is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.engine.embedding import EmbeddingConfig

PREFIX = "OMNIGRAPH_EMBED_"
FORCE_MOCK = "OMNIGRAPH_EMBEDDINGS_MOCK"
_KEYS = {
    "openai-compatible": ("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    "openai": ("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    "gemini": ("GEMINI_API_KEY",),
}
_OFF = ("", "0", "false")


def embedding_config(environ: Mapping[str, str]) -> EmbeddingConfig | None:
    """The configuration the variables describe, None when they say nothing.

    Raises:
        InputError: a provider is unknown, or a number is none.
    """
    mock = environ.get(FORCE_MOCK, "").strip().lower() not in _OFF
    named = "mock" if mock else environ.get(f"{PREFIX}PROVIDER", "").strip()
    if not named:
        return None
    from omnigraph.engine.embedding import EmbeddingConfig, Provider

    try:
        provider = Provider(named)
    except ValueError:
        raise InputError(f"{PREFIX}PROVIDER is '{named}': choose one of {', '.join(Provider)}") from None
    return EmbeddingConfig(
        provider=provider,
        model=environ.get(f"{PREFIX}MODEL", "").strip() or None,
        base_url=environ.get(f"{PREFIX}BASE_URL", "").strip() or None,
        api_key=next((value for name in _KEYS.get(named, ()) if (value := environ.get(name, "").strip())), None),
        deadline_seconds=_number(environ, "DEADLINE_MS", 60_000) / 1_000,
        timeout_seconds=_number(environ, "TIMEOUT_MS", 30_000) / 1_000,
        retry_attempts=_number(environ, "RETRY_ATTEMPTS", 4),
        retry_backoff_seconds=_number(environ, "RETRY_BACKOFF_MS", 200) / 1_000,
    )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(f"{PREFIX}{name}", "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise InputError(f"{PREFIX}{name} is '{text}': write a whole number")
    return int(text)
