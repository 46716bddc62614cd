"""Reading checkpoints: files, epochs, state and its lineage."""
