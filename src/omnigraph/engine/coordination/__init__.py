"""Who is writing: owners, intents, notes of presence, mutexes and the lock between processes."""
