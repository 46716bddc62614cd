"""The contract of keyed steps: logic for one key, logic for all keys of a shard."""
