"""The checkpoint directory: identity, lock, storage, and the start of a run on it."""
