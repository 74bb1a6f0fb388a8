"""Windows that are known under a name and have none here: which test goes through each, or why it does not exist.

Every other window of the crash matrix is a failpoint of its own name, and has a test (see `test_failpoint_names`).
"""

ONE_COMMIT = "does not exist: a table of a merge is changed by one commit"
NO_INDEX = "does not exist: a merge builds no index"

ELSEWHERE = {
    # The commit table is not branched, so there is nothing of it to reclaim with a branch.
    "branch_delete.before_commit_graph_reclaim": "does not exist: the commit table has no branches",
    # Creating a ref does not open it; the next step after it is the window that has a name.
    "fork.post_create_pre_open": "mutation.post_fork_pre_commit",
    # A delete is staged like any other change, so the window before it commits is the one after staging.
    "mutation.delete_node_pre_primary_delete": "mutation.post_stage_pre_effect_gate",
    # Indexes are built by optimize, in the same intent and behind the same fence.
    "ensure_indices.post_phase_b_pre_manifest_commit": "optimize.post_phase_b_pre_manifest_commit",
    "ensure_indices.post_stage_pre_commit_btree": "every storage operation of optimize, by the crash loop",
    "ensure_indices.post_table_effect": "every storage operation of optimize, by the crash loop",
    "ensure_indices.post_sidecar_pre_fork": "does not exist: optimize works on main and forks nothing",
    # An intent that appears between the check and the gates: stopped where optimize stores its own.
    "optimize.post_recovery_check_pre_main_gate": "recovery.sidecar_write",
    "branch_merge.adopt_after_upsert_pre_delete": ONE_COMMIT,
    # What is appended goes in one commit behind the one that deletes: one window between the two.
    "branch_merge.adopt_between_insert_chunks": "branch_merge.adopt_after_append_pre_upsert",
    "branch_merge.between_delete_chunks": ONE_COMMIT,
    "branch_merge.post_phase_b_pre_manifest_commit": "mutation.post_finalize_pre_publisher",
    "branch_merge.post_publish_pre_lineage": "does not exist: the commit is published with what it commits",
    "branch_merge.post_sidecar_pre_fork": "mutation.post_sidecar_pre_fork",
    "branch_merge.rewrite_after_delete_pre_index": NO_INDEX,
    "branch_merge.rewrite_after_merge_pre_delete": ONE_COMMIT,
}
