"""What an operator can set: limits, waits and switches, each with its default.

`Settings.from_environment` is given the variables by the command line, which alone reads the environment.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from omnigraph.errors import InputError

MIB = 1 << 20
_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


class Settings(Struct, frozen=True):
    """The limits of one server process; sizes are bytes."""

    body_bytes_max: int = MIB
    load_bytes_max: int = 32 * MIB
    table_rows_max: int | None = None
    table_bytes_max: int | None = None
    """What one request may put into one table, unless it replaces it; None for as much as it brings."""
    body_idle_seconds: float = 30.0
    """How long a client may be silent in the middle of a body."""
    actor_writes_max: int = 16
    actor_bytes_max: int = 4 << 30
    write_queue_seconds: float = 10.0
    """How long a write may wait before it starts."""
    keys_max: int = 1_000_000
    """Answers to requests with a key that are kept of a graph, for as long as they are promised."""
    keys_bytes_max: int = 1 << 30
    group_writes: bool = True
    """Whether writes that wait for one branch are published together."""
    read_threads: int = 8
    write_threads: int = 4
    exports_max: int = 8
    """Streams of exports and baselines at one time."""
    streams_max: int = 64
    """Open change streams at one time."""
    shutdown_grace_seconds: float = 30.0
    query_seconds_max: float = 0.0
    """How long one read query may match; 0 for as long as it takes."""
    cors_origins: tuple[str, ...] = ()
    metrics: bool = False

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Settings:
        """The defaults, replaced by what is set.

        Raises:
            InputError: a variable is not what it should be.
        """
        given: dict[str, object] = {}
        for variable, (name, read) in _VARIABLES.items():
            text = variables.get(variable, "").strip()
            if text:
                try:
                    given[name] = read(text)
                except ValueError as exc:
                    raise InputError(f"{variable} is {exc}, not '{text}'") from exc
        return cls(**given)  # type: ignore[arg-type]


def switched_on(text: str | None, *, variable: str) -> bool:
    """Whether a variable turns something on.

    Raises:
        InputError: it says neither.

    >>> switched_on("1", variable="X"), switched_on("false", variable="X"), switched_on(None, variable="X")
    (True, False, False)
    """
    word = (text or "").strip().lower()
    if word in _ON:
        return True
    if word in _OFF:
        return False
    raise InputError(f"{variable} is '1' or '0', not '{text}'")


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 62:
        raise ValueError("a whole number above zero")
    return int(text)


def _milliseconds(text: str) -> float:
    return _count(text) / 1000


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number of seconds") from None
    if not 0 <= value < 1e9:
        raise ValueError("a number of seconds")
    return value


def _switch(text: str) -> bool:
    if text.lower() not in (*_ON, *_OFF):
        raise ValueError("'1' or '0'")
    return text.lower() in _ON


def _origins(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if "*" in found:
        raise ValueError("a list of origins separated by commas; every request carries a token, so '*' is refused")
    return found


_VARIABLES = {
    "OMNIGRAPH_BODY_BYTES_MAX": ("body_bytes_max", _count),
    "OMNIGRAPH_LOAD_BYTES_MAX": ("load_bytes_max", _count),
    "OMNIGRAPH_TABLE_ROWS_MAX": ("table_rows_max", _count),
    "OMNIGRAPH_TABLE_BYTES_MAX": ("table_bytes_max", _count),
    "OMNIGRAPH_BODY_IDLE_S": ("body_idle_seconds", _seconds),
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": ("actor_writes_max", _count),
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX": ("actor_bytes_max", _count),
    "OMNIGRAPH_WRITE_QUEUE_DEADLINE_MS": ("write_queue_seconds", _milliseconds),
    "OMNIGRAPH_IDEMPOTENCY_KEYS_MAX": ("keys_max", _count),
    "OMNIGRAPH_IDEMPOTENCY_BYTES_MAX": ("keys_bytes_max", _count),
    "OMNIGRAPH_GROUP_WRITES": ("group_writes", _switch),
    "OMNIGRAPH_READ_THREADS": ("read_threads", _count),
    "OMNIGRAPH_WRITE_THREADS": ("write_threads", _count),
    "OMNIGRAPH_EXPORTS_MAX": ("exports_max", _count),
    "OMNIGRAPH_STREAMS_MAX": ("streams_max", _count),
    "OMNIGRAPH_SHUTDOWN_GRACE_S": ("shutdown_grace_seconds", _seconds),
    "OMNIGRAPH_QUERY_SECONDS_MAX": ("query_seconds_max", _seconds),
    "OMNIGRAPH_CORS_ORIGINS": ("cors_origins", _origins),
    "OMNIGRAPH_METRICS": ("metrics", _switch),
}
"""The variable of each setting, and how its text is read."""

assert {name for name, _ in _VARIABLES.values()} <= set(Settings.__struct_fields__)
