"""Texts of a command line are taken as they were typed.

The parser builds a validator for every option of a command that runs, given or not, and loads a validation library for
it: more than the rest of the command line takes. An option that was not given has no value to validate, and a text is a
text already; so only what remains, numbers and choices that were given, is left to the validators.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Given:
    """What the parser asks for the value of one parameter."""

    def __init__(self, parameter: Any, validator: Any) -> None:
        self._parameter = parameter
        self._validator = validator

    def coerce(self, value: Any, **surroundings: Any) -> Any:
        """The value, validated where it is not one already."""
        one = not self._parameter.multiple and self._parameter.nargs == 1
        if one and (value is None or (isinstance(value, str) and self._parameter.type_descriptor.annotation is str)):
            return value
        return self._validator().coerce(value, **surroundings)


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _simplified(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _simplified(super().get_params(ctx))


def _simplified(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        validator = getattr(parameter, "get_runtime_param", None)
        if validator is not None and not isinstance(validator, partial):
            parameter.get_runtime_param = partial(_Given, parameter, validator)
    return parameters


def take_texts_as_typed(application: typer.Typer) -> None:
    """Do so for every command of an application, those of its groups included."""
    application.info.cls = _Group
    for command in application.registered_commands:
        command.cls = _Command
    for group in application.registered_groups:
        if group.typer_instance is not None:
            take_texts_as_typed(group.typer_instance)
