"""Our dataclasses behave as the standard ones do, whichever method is called first."""

import copy
import dataclasses
import pickle
import subprocess
import sys
import threading
from dataclasses import field
from typing import Any

import pytest

from omnigraph.dataclass import dataclass


def _classes(decorate: Any) -> dict[str, Any]:
    """The same classes under either decorator: every option and every kind of field that the package uses."""

    @decorate(frozen=True)
    class Place:
        """Frozen, with a default that takes no part in comparing."""

        name: str
        size: int = 3
        span: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)

    @decorate(frozen=True)
    class Port(Place):
        """A frozen class that adds to another."""

        ships: tuple[str, ...] = ()

    @decorate
    class Counter:
        """Changes, and makes its own containers."""

        name: str
        seen: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.seen.append(len(self.name))

    @decorate(frozen=True, eq=False)
    class Handle:
        """Equal to itself alone."""

        number: int

    @decorate(frozen=True)
    class Empty:
        """Nothing but its kind."""

    @decorate(frozen=True)
    class Spoken:
        """Says and hashes itself in its own way."""

        text: str

        def __repr__(self) -> str:
            return f"«{self.text}»"

        def __hash__(self) -> int:
            return 7

    return {kind.__name__: kind for kind in (Place, Port, Counter, Handle, Empty, Spoken)}


def _outcome(act: Any) -> Any:
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error).replace("_classes.<locals>.", "")


ACTS: dict[str, Any] = {
    "repr": lambda c: [repr(c["Place"]("a")), repr(c["Port"]("b", ships=("x",))), repr(c["Spoken"]("hi"))],
    "repr of nothing": lambda c: repr(c["Empty"]()),
    "equal": lambda c: c["Place"]("a", span=(1, 2)) == c["Place"]("a", 3),
    "unequal": lambda c: c["Place"]("a", 4) == c["Place"]("a", 3),
    "another class": lambda c: c["Port"]("a") == c["Place"]("a"),
    "one field": lambda c: (c["Spoken"]("a") == c["Spoken"]("a"), c["Empty"]() == c["Empty"]()),
    "the same object is equal": lambda c: (lambda nan: c["Spoken"](nan) == c["Spoken"](nan))(float("nan")),
    "identity": lambda c: (c["Handle"](1) == c["Handle"](1), len({c["Handle"](1), c["Handle"](1)})),
    "hash": lambda c: hash(c["Place"]("a", 2, (5, 6))) == hash(("a", 2)),
    "own hash": lambda c: hash(c["Spoken"]("a")),
    "no hash": lambda c: hash(c["Counter"]("a")),
    "assign": lambda c: setattr(c["Place"]("a"), "name", "b"),
    "assign what is no field": lambda c: setattr(c["Place"]("a"), "other", "b"),
    "assign of a subclass": lambda c: vars(_assigned(type("Plain", (c["Place"],), {})("a"))),
    "delete": lambda c: delattr(c["Place"]("a"), "name"),
    "change": lambda c: vars(_assigned(c["Counter"]("abc"))),
    "own lists": lambda c: (c["Counter"]("a").seen, c["Counter"]("ab").seen, c["Counter"]("a", [9]).seen),
    "fields": lambda c: [(f.name, f.compare, f.repr) for f in dataclasses.fields(c["Port"])],
    "as a dict": lambda c: dataclasses.asdict(c["Port"]("a")),
    "replace": lambda c: repr(dataclasses.replace(c["Port"]("a"), size=9)),
    "match": lambda c: c["Port"].__match_args__,
    "too few": lambda c: c["Place"](),
    "too many": lambda c: c["Place"](1, 2, 3, 4),
    "unknown": lambda c: c["Place"]("a", colour=1),
    "twice": lambda c: c["Place"]("a", name="b"),
    "copy": lambda c: repr(copy.deepcopy(c["Port"]("a"))),
    "made without arguments": lambda c: object.__new__(c["Place"]) == object.__new__(c["Place"]),
}


def _assigned(instance: Any) -> Any:
    instance.other = 1
    return instance


@pytest.mark.parametrize("act", ACTS)
def test_it_does_what_the_standard_one_does(act: str) -> None:
    ours, theirs = (
        _outcome(lambda made=decorate: ACTS[act](_classes(made))) for decorate in (dataclass, dataclasses.dataclass)
    )
    assert ours == theirs


def test_a_method_is_written_once_and_then_has_the_arguments_of_its_fields() -> None:
    place = _classes(dataclass)["Place"]
    place("a")
    written = place.__init__
    place("b")
    assert place.__init__ is written
    assert written.__code__.co_varnames == ("self", "name", "size", "span")
    assert written.__qualname__.endswith("Place.__init__")


def test_a_first_instance_made_by_many_threads_is_whole_in_each() -> None:
    for _ in range(50):
        place = _classes(dataclass)["Port"]
        begin = threading.Barrier(4)
        found: list[Any] = []

        def make(place: Any = place, begin: threading.Barrier = begin, found: list[Any] = found) -> None:
            begin.wait()
            found.append((place("a", ships=("x",)), hash(place("a"))))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1


def test_what_another_process_pickled_can_be_compared_before_any_is_made() -> None:
    from omnigraph.language.query_ast import Hops

    script = (
        "import pickle, sys; one, other = pickle.loads(sys.stdin.buffer.read());"
        "print(one == other, hash(one) == hash(other), one)"
    )
    text = pickle.dumps((Hops(1, 3), Hops(1, 3)))
    done = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().strip() == "True True Hops(low=1, high=3)"
