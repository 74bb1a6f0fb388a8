"""What the package takes for granted about `msgspec.Struct`, and what differs from a dataclass."""

import copy
import gc
import pickle
import weakref
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

import msgspec
import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import asdict, astuple, force_setattr, replace

T = TypeVar("T")


class Plain(Struct, frozen=True):
    kind: ClassVar[str] = "plain"
    name: str
    more: dict[str, int] = msgspec.field(default_factory=dict)


class Derived(Plain, frozen=True, dict=True, weakref=True):
    kind = "derived"
    last: int = 0

    @cached_property
    def length(self) -> list[int]:
        return [len(self.name)]


class Ordered(Struct, frozen=True, order=True):
    first: int
    second: str


class Alone(Struct, frozen=True, eq=False):
    name: str


class Mutable(Struct):
    name: str


class Filled(Struct, frozen=True):
    name: str
    full: str = ""

    def __post_init__(self) -> None:
        if not self.full:
            force_setattr(self, "full", f"{self.name}!")


class Placed(Struct, frozen=True):
    """A base that compares without the places of what derives from it."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and astuple(self)[:-1] == astuple(other)[:-1]  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(astuple(self)[:-1])


class Word(Placed, frozen=True):
    text: str
    place: int


class Boxed(Struct, Generic[T], frozen=True):
    held: T


def test_a_frozen_one_refuses_changes_and_is_equal_and_hashed_by_content() -> None:
    with pytest.raises(AttributeError):
        Ordered(1, "a").first = 2  # type: ignore[misc]
    assert Ordered(1, "a") == Ordered(1, "a")
    assert len({Ordered(1, "a"), Ordered(1, "a")}) == 1
    assert sorted([Ordered(2, "a"), Ordered(1, "b"), Ordered(1, "a")])[0] == Ordered(1, "a")


def test_equality_asks_for_the_same_class_and_takes_the_same_object_as_equal() -> None:
    assert Plain("a") != Derived("a")
    array, number = np.arange(3), float("nan")
    assert Boxed((array, number)) == Boxed((array, number))


def test_without_equality_each_is_itself_and_a_mutable_one_has_no_hash() -> None:
    one = Alone("a")
    assert one != Alone("a")
    assert len({one, Alone("a")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Mutable("a"))


def test_an_equality_of_a_base_is_inherited_in_all_its_forms() -> None:
    assert Word("a", 1) == Word("a", 2)
    assert [Word("a", 1).__ne__(Word("a", 2)), Word("a", 1).__ne__(Word("b", 1))] == [False, True]
    assert {Word("a", 1)} == {Word("a", 2)}


def test_what_is_cached_is_kept_beside_the_fields_and_goes_with_a_copy() -> None:
    made = Derived("abc", last=2)
    assert made.length is made.length
    assert made.__dict__ == {"length": [3]}
    assert asdict(made) == {"name": "abc", "more": {}, "last": 2}
    assert replace(made, last=3).__dict__ == {}
    assert not hasattr(Plain("a"), "__dict__")


def test_a_weak_reference_needs_to_be_asked_for() -> None:
    held = Derived("a")
    reference = weakref.ref(held)
    del held
    gc.collect()
    assert reference() is None
    with pytest.raises(TypeError):
        weakref.ref(Plain("a"))


def test_class_variables_are_inherited_and_defaults_are_made_anew() -> None:
    assert (Plain.kind, Derived.kind, Derived("a").kind) == ("plain", "derived", "derived")
    assert Plain("a").more is not Plain("a").more
    assert Plain.__struct_fields__ == Plain.__match_args__ == ("name", "more")


def test_they_are_pickled_and_copied_by_their_fields_alone() -> None:
    made = Derived("abc", {"x": 1}, 2)
    assert made.length
    for again in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert again == made
        assert again.__dict__ == {}
    # What `__post_init__` fills in travels with the rest: it runs again where a pickle is read.
    filled = pickle.loads(pickle.dumps(Filled("a", full="of elsewhere")))
    assert filled.full == "of elsewhere"
    assert Filled("a").full == "a!"


def test_a_generic_one_is_its_plain_class() -> None:
    assert type(Boxed[int](1)) is Boxed
