"""Windowers: the windows of a value, and their closes."""
