"""What a schema demands of rows, and the one validator of every write."""
