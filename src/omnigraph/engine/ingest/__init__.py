"""What a load is given, brought to one form: tables of checked rows per type."""
