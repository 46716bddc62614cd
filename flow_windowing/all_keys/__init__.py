"""Windows over all keys: partial accumulators of keys, merged to one result for each window."""
