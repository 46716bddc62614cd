"""The identity of a flow: its fingerprint, and whether it may go on from a checkpoint."""
