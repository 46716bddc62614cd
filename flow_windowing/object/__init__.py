"""The object path: one driver for each key of a windowing step."""
