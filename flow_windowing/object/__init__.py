"""The path key by key: one driver a key."""
