"""The streams of a windowing step: names and port numbers."""

PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))
