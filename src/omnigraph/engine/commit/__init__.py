"""The one path from a staged write to a visible one. Start at `commit`.

A writer describes what it wants as a `CommitRequest`: the commits of each table, the entries that change without one,
and what must still hold. `commit` is the only code that arms an intent, applies it, publishes and disarms; what differs
between writers is a row of `kinds`.

    table = TableCommit(entry, (staged, stage_more), becomes=entry.table_key, base=handle)
    commit(context, CommitRequest(MUTATION, "main", snapshot, tables=(table,), actor="ann")).snapshot

A table may be committed to more than once in one write: `steps` holds what is staged already, or a function that stages
on the version the step before has made. A kind that is `confirmed` records the versions reached before it publishes. A
request without effects, such as one of `pointers` alone, needs no intent: its one publish is all there is.
"""
