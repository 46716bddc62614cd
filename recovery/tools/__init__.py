"""Tools that show, check and change checkpoints."""
