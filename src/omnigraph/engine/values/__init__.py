"""Values from outside become columns of the schema's types, strictly and a column at a time."""
