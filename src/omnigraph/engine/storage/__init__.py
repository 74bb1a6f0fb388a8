"""The one home of Lance: tables and text objects below a graph root. Start at `TableStore`.

No function here writes data and moves a head in one call: changes are staged, which nobody can see, and then
committed strictly at the version they were staged on. What Lance can only do inline stands apart in
`InlineCommitResidual`.
"""
