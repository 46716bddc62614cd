"""State of keyed steps: segments, headers, and their layout in shards."""
