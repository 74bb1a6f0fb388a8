"""Finishing, or undoing, a write that a crash cut short. Start at `Intent`.

A writer arms an intent before its first effect and disarms it after the publish. Whoever finds one without a living
owner reads the world (`observe`), compares (`classify`), chooses (`decide`) and acts (`resolve`).
"""

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import Intent
from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.recovery.rollback import roll_back, was_published
from omnigraph.engine.recovery.sweep import heal, settle, sweep

__all__ = [
    "Intent",
    "IntentStore",
    "RecoveryContext",
    "heal",
    "roll_back",
    "settle",
    "sweep",
    "was_published",
]
