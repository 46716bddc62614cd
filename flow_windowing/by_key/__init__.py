"""Execution key by key: one driver for each key of a windowing step."""
