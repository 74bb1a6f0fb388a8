"""Named places where a test may stop, fail or kill a write.

Production code calls `maybe_fail(NAME)`; unless a plan is installed that is one comparison with None. The names are
constants of this module, so a place cannot be misspelt; `omnigraph.testing.failpoints` installs plans. Most crash
points need no name: the crash loop finds every storage operation by itself. A name is given where a story has to stop
between two decisions rather than around one operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# --- creating a graph ---
INIT_AFTER_SCHEMA_WRITTEN: Final = "init.after_schema_pg_written"
INIT_AFTER_CONTRACT_WRITTEN: Final = "init.after_schema_contract_written"
INIT_MANIFEST_ACK_LOST: Final = "init.manifest_create_ack_lost"
INIT_POST_MANIFEST_CREATE: Final = "init.post_manifest_create"
INIT_AFTER_COORDINATOR: Final = "init.after_coordinator_init"

# --- one write ---
MUTATION_POST_STAGE: Final = "mutation.post_stage_pre_effect_gate"
MUTATION_PRE_ARM: Final = "mutation.post_check_pre_sidecar"
MUTATION_PRE_FORK: Final = "mutation.post_sidecar_pre_fork"
MUTATION_POST_FORK: Final = "mutation.post_fork_pre_commit"
MUTATION_POST_TABLE_COMMIT: Final = "mutation.post_table_commit"
MUTATION_POST_FINALIZE: Final = "mutation.post_finalize_pre_publisher"
PUBLISH_AFTER_PRECHECK: Final = "publish.after_precheck_pre_merge"
PUBLISH_AFTER_COMMIT: Final = "graph_publish.after_manifest_commit"
PUBLISH_BEFORE_PROJECTION: Final = "graph_publish.before_commit_append"
PUBLISH_LOAD_CONTENTION: Final = "publish.load_state_retryable_contention"
PUBLISH_REJECTED: Final = "publish.rejected_after_effects"

# --- branches ---
BRANCH_CREATE_POST_NATIVE: Final = "branch_create.post_native"
BRANCH_CREATE_AFTER_MANIFEST: Final = "branch_create.after_manifest_branch_create"
BRANCH_DELETE_PRE_NATIVE: Final = "branch_delete.locked_pre_native"
BRANCH_DELETE_POST_NATIVE: Final = "branch_delete.post_native"
BRANCH_DELETE_BEFORE_TABLES: Final = "branch_delete.before_table_cleanup"
TAG_BEFORE_PUT: Final = "tag.before_put"
FORK_BEFORE_CLASSIFY: Final = "fork.before_classify"
CLASSIFY_FRESH_READ: Final = "classify.fresh_read"
FORK_BEFORE_RECLAIM: Final = "fork.before_reclaim"

# --- merging ---
MERGE_POST_VALIDATION: Final = "branch_merge.post_candidate_validation"
MERGE_BETWEEN_COMMITS: Final = "branch_merge.adopt_after_append_pre_upsert"
MERGE_PRE_CONFIRM: Final = "branch_merge.post_effects_pre_confirm"

# --- changing the schema ---
SCHEMA_HOLDING_LOCK: Final = "schema_apply.holding_lock"
SCHEMA_POST_TABLE_COMMIT: Final = "schema_apply.post_table_commit"
SCHEMA_BEFORE_STAGING: Final = "schema_apply.before_staging_write"
SCHEMA_BETWEEN_STAGING_FILES: Final = "schema_apply.between_staging_files"
SCHEMA_AFTER_STAGING: Final = "schema_apply.after_staging_write"
SCHEMA_AFTER_MANIFEST_COMMIT: Final = "schema_apply.after_manifest_commit"
SCHEMA_BETWEEN_RENAMES: Final = "schema_apply.between_renames"

# --- intents ---
SIDECAR_WRITE: Final = "recovery.sidecar_write"
SIDECAR_CONFIRM: Final = "recovery.sidecar_confirm"
SIDECAR_DELETE: Final = "recovery.sidecar_delete"
SIDECAR_LIST: Final = "recovery.sidecar_list"
SIDECAR_LISTED: Final = "recovery.post_sidecar_list_pre_read"

# --- recovery itself ---
RECOVERY_POST_LIST: Final = "recovery.post_list_pre_gates"
RECOVERY_BEFORE_FORWARD: Final = "recovery.before_roll_forward_publish"
RECOVERY_POST_RESTORE: Final = "recovery.post_table_restore_pre_publish"
RECOVERY_POST_ROLLBACK: Final = "recovery.post_rollback_publish_pre_audit"
RECOVERY_AUDIT: Final = "recovery.record_audit"
RECOVERY_DISCARD_AUDIT: Final = "recovery.orphan_discard_audit_append"

# --- reading ---
BLOB_READ_POST_CAPTURE: Final = "blob_read.post_capture"
FEED_POST_CAPTURE: Final = "change_feed.post_capture"
FEED_PRE_TABLE_OPEN: Final = "change_feed.pre_table_open"

# --- maintenance ---
OPTIMIZE_POST_EFFECTS: Final = "optimize.post_phase_b_pre_manifest_commit"
CLEANUP_TABLE: Final = "cleanup.table_gc"
CLEANUP_FORK: Final = "cleanup.reconcile_fork"
CLEANUP_PRE_GATES: Final = "cleanup.post_recovery_check_pre_gates"
CLEANUP_BRANCH_SNAPSHOT: Final = "cleanup.resolve_branch_snapshot"

_plan: Callable[[str], None] | None = None


def maybe_fail(name: str) -> None:
    """Let an installed plan act here; free when there is none."""
    if _plan is not None:
        _plan(name)


def are_set() -> bool:
    """Whether somebody may stop this process at a failpoint, and wants everything before it done there."""
    return _plan is not None


def install(plan: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Install what happens at failpoints in this process, or None for nothing; returns what was installed before."""
    global _plan
    previous, _plan = _plan, plan
    return previous


def names() -> frozenset[str]:
    """Every failpoint that exists."""
    return frozenset(value for name, value in globals().items() if name.isupper() and isinstance(value, str))
