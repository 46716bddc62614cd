"""A windowing step over columns: one epoch of all keys of a shard."""
