"""The embedding provider of the environment."""

import pytest

from omnigraph.cli.embedding import embedding_config
from omnigraph.engine.embedding import EmbeddingConfig, Provider
from omnigraph.errors import InputError


def test_nothing_set_means_the_default() -> None:
    assert embedding_config({}) is None
    assert embedding_config({"OMNIGRAPH_EMBEDDINGS_MOCK": "0", "OMNIGRAPH_EMBED_PROVIDER": " "}) is None


def test_every_variable_is_read() -> None:
    config = embedding_config(
        {
            "OMNIGRAPH_EMBED_PROVIDER": "openai",
            "OMNIGRAPH_EMBED_MODEL": "m",
            "OMNIGRAPH_EMBED_BASE_URL": "http://localhost:1/v1",
            "OMNIGRAPH_EMBED_DEADLINE_MS": "0",
            "OMNIGRAPH_EMBED_TIMEOUT_MS": "1500",
            "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "2",
            "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "50",
            "OPENAI_API_KEY": "secret",
        }
    )
    assert config == EmbeddingConfig(Provider.OPENAI, "m", "http://localhost:1/v1", "secret", 0.0, 1.5, 2, 0.05)
    assert "secret" not in repr(config)


def test_each_provider_has_its_own_key() -> None:
    keys = {"OPENROUTER_API_KEY": "router", "OPENAI_API_KEY": "openai", "GEMINI_API_KEY": "gemini"}
    found = {
        name: config.api_key
        for name in ("openai-compatible", "openai", "gemini", "mock", "local")
        if (config := embedding_config({**keys, "OMNIGRAPH_EMBED_PROVIDER": name})) is not None
    }
    assert found == {
        "openai-compatible": "router",
        "openai": "router",
        "gemini": "gemini",
        "mock": None,
        "local": None,
    }


def test_the_mock_can_be_forced() -> None:
    config = embedding_config({"OMNIGRAPH_EMBEDDINGS_MOCK": "1", "OMNIGRAPH_EMBED_PROVIDER": "gemini"})
    assert config is not None
    assert config.provider is Provider.MOCK


@pytest.mark.parametrize(
    "environ",
    [
        {"OMNIGRAPH_EMBED_PROVIDER": "skynet"},
        {"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_EMBED_TIMEOUT_MS": "soon"},
        {"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "-1"},
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(InputError, match="OMNIGRAPH_EMBED_"):
        embedding_config(environ)
