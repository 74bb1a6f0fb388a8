"""One graph for many, over HTTP: the one home of the web framework. Start at `create_app`."""
