"""Windowers: the windows of a value, and when they close."""
