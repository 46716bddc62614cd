"""Runs: in the background, and the reports after their epochs."""
