"""Finishing, or undoing, a write that a crash cut short. Start at `Intent`.

A writer arms an intent before its first effect and disarms it after the publish. Whoever finds one without a living
owner reads the world (`observe`), compares (`classify`), chooses (`decide`) and acts (`resolve`).
"""

from omnigraph.engine.recovery.intent import Effect, Intent, WriterKind, new_intent
from omnigraph.engine.recovery.observe import RecoveryContext
from omnigraph.engine.recovery.rollback import roll_back, was_published
from omnigraph.engine.recovery.sidecars import IntentStore
from omnigraph.engine.recovery.sweep import heal, sweep

__all__ = [
    "Effect",
    "Intent",
    "IntentStore",
    "RecoveryContext",
    "WriterKind",
    "heal",
    "new_intent",
    "roll_back",
    "sweep",
    "was_published",
]
