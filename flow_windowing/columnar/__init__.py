"""Windowing over columns: all keys of a shard at once, as `flow_windowing.object` does one by one.

The contract is the same, and so are the answers; only the shape of the work differs. `ShardWindows`
runs a windowing step over all keys of a shard in an epoch: timestamps, watermarks, lateness and
windows are worked out for whole columns, and each aggregate either on columns too, or, for a user's
own functions, in one loop for each window.
"""
