"""Examples that run: a generated data set and the story that `make quickstart` tells with it."""
