"""Dataclasses that cost a starting process little.

The standard decorator writes and compiles up to six methods for every class when its module is imported, and most
classes of a run are never made: of what a first query had to wait for in this package, that was more than half. Here
the standard decorator finds the fields, and each method is written when it is first called. Instances, `fields`,
`replace`, `asdict`, matching and pickles are those of the standard library; classes that a caller looks up, to read
their signature, use the standard decorator itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeAlias

Fields: TypeAlias = tuple[dataclasses.Field[Any], ...]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True):
        """The decorator, with the options that are used."""
        if cls is None:
            return lambda found: _completed(found, frozen, eq)
        return _completed(cls, frozen, eq)


def _completed(cls: type[Any], frozen: bool, eq: bool) -> type[Any]:
    own = cls.__dict__.copy()
    # Without methods to write the standard decorator only finds the fields, and the order to match them in.
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    methods = {
        "__init__": _when_called(cls, "__init__", lambda: _init_of(fields, frozen, hasattr(cls, "__post_init__"))),
        "__repr__": _repr_of(fields),
    }
    if eq:
        methods["__eq__"] = _when_called(cls, "__eq__", lambda: _eq_of(fields))
        if own.get("__hash__") is None:
            methods["__hash__"] = _when_called(cls, "__hash__", lambda: _hash_of(fields)) if frozen else None
            own.pop("__hash__", None)
    if frozen:
        methods |= _frozen_methods(cls, frozenset(field.name for field in fields))
    for name in methods.keys() - own.keys():
        setattr(cls, name, methods[name])
    return cls


def _when_called(cls: type[Any], name: str, write: Callable[[], Any]) -> Any:
    """A method that puts the real one in its place; two threads that meet here write the same one twice."""

    def first(self: Any, /, *args: Any, **named: Any) -> Any:
        method = write()
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        method.__module__ = cls.__module__
        setattr(cls, name, method)
        return method(self, *args, **named)

    first.__name__, first.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return first


def _written(head: str, lines: list[str], known: dict[str, Any]) -> Any:
    exec("\n ".join([f"def {head}:", *lines]), known)
    return known[head.partition("(")[0]]


def _init_of(fields: Fields, frozen: bool, post_init: bool) -> Any:
    """What would be written by hand: one argument for each field, and one assignment."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    arguments, lines = ["self"], []
    for field in fields:
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            arguments.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            arguments.append(f"{name}=_default_{name}")
        else:
            arguments.append(name)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if post_init:
        lines.append("self.__post_init__()")
    return _written(f"__init__({', '.join(arguments)})", lines or ["pass"], known)


def _eq_of(fields: Fields) -> Any:
    names = [field.name for field in fields if field.compare]
    lines = [f"if other.__class__ is self.__class__: return {_tuple(names, 'self')} == {_tuple(names, 'other')}"]
    return _written("__eq__(self, other)", [*lines, "return NotImplemented"], {})


def _hash_of(fields: Fields) -> Any:
    names = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    return _written("__hash__(self)", [f"return hash({_tuple(names, 'self')})"], {})


def _tuple(names: list[str], of: str) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _repr_of(fields: Fields) -> Any:
    names = [field.name for field in fields if field.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _frozen_methods(cls: type[Any], names: frozenset[str]) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}
