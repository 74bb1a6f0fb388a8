"""What a schema means. Start at `Catalog`; build one with `omnigraph.catalog.resolve.compile_schema`."""
