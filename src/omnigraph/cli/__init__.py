"""The command line: every verb of a graph, typed by hand or by a script.

Start at `omnigraph.cli.main.main`. A verb is a module in `commands`, imported only when it is called, so that help and
version answer at once; what verbs share (addresses, inputs, formats, exit codes) stands beside them.
"""
