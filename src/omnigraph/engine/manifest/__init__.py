"""What is published: the `__manifest` table, its snapshots, its history. Start at `Snapshot`."""
