"""The identity of a flow: its fingerprint, and its admission to a checkpoint."""
