"""The arrival of a value: its timestamp and its numbers among the values of its key."""

from typing import NamedTuple


class Arrival(NamedTuple):
    """The arrival of a value.

    Attributes:
        timestamp_us: the timestamp, in microseconds since the Unix epoch.
        number: the arrival number: the number of values of the key that arrived before.
        entered: the entry number: the number of values of the key that entered windows before. It
            differs from the arrival number where values are buffered to enter in timestamp order.
    """

    timestamp_us: int
    number: int
    entered: int
