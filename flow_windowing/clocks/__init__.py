"""Clocks: the timestamp of a value, and the watermark."""
