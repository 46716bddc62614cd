"""The checkpoint directory: identity, lock, storage, and how a run goes on from it."""
