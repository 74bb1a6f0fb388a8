"""The prompt of `omnigraph shell`: statements and dot commands, typed or piped. Start at `Shell`."""
