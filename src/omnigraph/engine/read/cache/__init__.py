"""What was derived from data files, kept on disk for the next process."""
