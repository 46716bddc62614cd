"""What an epoch's rows are known again by: how many they are, and a digest.

The digest of several rows is the sum of those of each. So it depends neither on their order nor on
how they are dealt out to workers and chunks, and each worker can make its own part.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

_BYTES = 16
_MODULUS = 1 << 8 * _BYTES
# Later versions write a value in another way when something else refers to it, too.
_FORMAT = 2


@dataclass(frozen=True)
class Content:
    """What is known of an epoch's rows.

    Attributes:
        count: how many they are.
        digest: what tells them from other rows, as text.
    """

    count: int
    digest: str

    @classmethod
    def of(cls, counts: Iterable[int], digests: Iterable[int]) -> Content:
        """What is known of rows of which each chunk has been counted and digested.

        >>> Content.of([2, 1], [250, 5])
        Content(count=3, digest='000000000000000000000000000000ff')
        """
        return cls(sum(counts), f"{sum(digests) % _MODULUS:0{2 * _BYTES}x}")


def digest_of(change: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> int:
    """The digest of rows that hold what a driver is given; the same in every process.

    >>> both = digest_of("put", ["k", "n"], [("a", 1), ("b", None)])
    >>> both == sum(digest_of("put", ["k", "n"], [row]) for row in [("b", None), ("a", 1)])
    True
    """
    named = blake2b(
        "\0".join([change, *columns]).encode(errors="surrogatepass"), digest_size=_BYTES
    )
    total = 0
    for row in rows:
        one = named.copy()
        one.update(marshal.dumps(row, _FORMAT))
        total += int.from_bytes(one.digest(), "big")
    return total
