"""The routes, a resource a file; each has a `router` that `omnigraph.server.app` includes."""
