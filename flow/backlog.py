"""Text of the backlog of an input, for the progress line and the summary."""

from __future__ import annotations

from collections.abc import Mapping


def behind_text(behind: Mapping[str, int], most: int) -> str:
    """Return the number of items that an input is behind, and the partitions furthest behind.

    Args:
        behind: the number of items that each source partition is behind.
        most: the greatest number of partitions to name.

    >>> behind_text({"orders/0": 1_000, "orders/1": 0, "orders/2": 20}, 3)
    '1,020 behind (orders/0 1,000, orders/2 20)'
    """
    worst = sorted(behind.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {count:,}" for name, count in worst if count]
    more = ["…"] if len(named) > most else []
    total = f"{sum(behind.values()):,} behind"
    return f"{total} ({', '.join(named[:most] + more)})" if named else total
