"""Formats of the files that this project writes into a checkpoint."""
