"""Schema files that a change of the schema has left beside the live ones."""

from __future__ import annotations

import logging

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.schema.files import any_staged, discard, live_hash, promote, staged_record
from omnigraph.engine.storage import layout
from omnigraph.errors import ConflictError

_log = logging.getLogger(__name__)


def settle_leftovers(ctx: RecoveryContext) -> None:
    """Decide about staged files that no intent speaks for: what is published wins.

    Raises:
        ConflictError: the live files do not fit either; an operator has to look.
    """
    objects = ctx.store.objects
    if not any_staged(objects) or any(i.writer_kind is WriterKind.SCHEMA_APPLY for i in ctx.intents.pending()):
        return
    published = ctx.manifest.snapshot().schema_hash
    staged = staged_record(objects)
    live = live_hash(objects)
    if published is not None and (staged is None or staged.schema_hash == published) and live != published:
        _log.warning("the files of a published schema change are put in place")
        promote(objects)
    elif live is not None and published in (None, live):
        _log.warning("the files of a schema change that was not published are removed")
        discard(objects)
    else:
        raise ConflictError(
            f"schema files with the ending {layout.STAGING_SUFFIX} are left, and neither they nor the live ones are"
            " the published schema: put the right ones in place"
        )
