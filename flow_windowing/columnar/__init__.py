"""Windowing over columns: all keys of a shard together.

The results are the same as those of `flow_windowing.by_key`, which runs key by key. `ShardWindows`
runs a windowing step over all keys of a shard in an epoch: it computes timestamps, watermarks,
lateness and windows for whole columns. Aggregates of numbers are computed in columns as well;
functions of the user run in one loop for each window.
"""
