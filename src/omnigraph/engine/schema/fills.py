"""The columns of a type whose values change with its schema, and what becomes of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.model import EntityType
from omnigraph.engine.storage.evolve import Fill
from omnigraph.engine.values.defaults import default_scalar


def fills_of(before: EntityType, after: EntityType, renames: Mapping[str, str], now: dt.datetime) -> dict[str, Fill]:
    """What has to be written for existing rows, by the new name of the property.

    `renames` maps old names to new ones, and `now` is the moment of the change, which one default may stand for.
    """
    old_names = {new: old for old, new in renames.items()}
    found = {}
    for name, prop in after.properties.items():
        source = old_names.get(name, name)
        old = before.properties.get(source)
        default = None if prop.type.nullable else default_scalar(prop, now)
        if old is None:
            if default is not None:
                found[name] = Fill(name, None, arrow_type(prop.type), default)
        elif old.type.scalar is not prop.type.scalar:
            found[name] = Fill(name, source, arrow_type(prop.type), default if old.type.nullable else None)
        elif old.type.nullable and default is not None:
            found[name] = Fill(name, source, arrow_type(prop.type), default)
    return found
