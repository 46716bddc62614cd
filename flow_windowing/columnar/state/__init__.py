"""Shard state in columns: clocks, open windows, their bounds."""
