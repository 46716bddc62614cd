"""An online auction house: persons, auctions and bids, made from event numbers and a seed.

It follows the defaults of the generator of the Nexmark suite (https://github.com/nexmark/nexmark,
``generator/`` and ``NexmarkConfiguration.java``) in the properties that decide the cost of a query:

- Of 50 events one is a new person, three are new auctions and 46 are bids, in this order.
- Events are evenly spaced in time and in order.
- Half of the bids are for the hot auction: the first of the last hundred. The others are for one of
  the last hundred, or of the next ten.
- Three quarters of the bids are by the hot bidder, the second of the last hundred persons, and of
  the auctions three quarters are the hot seller's, the first of them. The others are by one of the
  last thousand persons, or of the next ten.
- Prices are spread evenly over their logarithms, from 1 to 1 000 000 dollars, in cents.

It differs in three ways. Ids are text, since keys are text. A bidder's id is that of a person,
while the suite adds 1 000 to it twice. Random numbers are drawn for a block of events at a time, so
the events differ from the suite's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
ROUND = PERSONS + AUCTIONS + BIDS
SHARES = {"person": PERSONS / ROUND, "auction": AUCTIONS / ROUND, "bid": BIDS / ROUND}
"""The share of each table in all events."""
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
BASE_TIME = datetime(2015, 7, 15, tzinfo=UTC)

HOT_AUCTIONS = 2
"""One bid in this number is not for the hot auction."""
HOT_BIDDERS = HOT_SELLERS = 4
"""One bid, or auction, in this number is not by the hot person."""
HOT_OF = 100
"""One auction, or person, in this number becomes hot."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1_000, 10

STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"]
CITIES += ["Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul"]
FIRST_NAMES += ["Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
HOT_CHANNELS, CHANNELS = ["Google", "Facebook", "Baidu", "Apple"], 10_000


@dataclass(frozen=True)
class AuctionHouse:
    """The events of an auction house.

    Args:
        seed: the seed; random numbers depend on it and on the number of the block.
        rate: the number of events in a second of event time.
    """

    seed: int = 1
    rate: int = 10_000

    def block(self, first: int, count: int) -> dict[str, pa.Table]:
        """Return the events of a block, by table; `first` is the number of its first event."""
        random = Random(self.seed, first)
        events = np.arange(first, first + count, dtype=np.int64)
        place = events % ROUND
        return {
            "person": self._persons(events[place < PERSONS], random),
            "auction": self._auctions(
                events[(place >= PERSONS) & (place < PERSONS + AUCTIONS)], random
            ),
            "bid": self._bids(events[place >= PERSONS + AUCTIONS], random),
        }

    def _persons(self, events: Numbers, random: Random) -> pa.Table:
        count = len(events)
        names = _joined(" ", random.choice(FIRST_NAMES, count), random.choice(LAST_NAMES, count))
        mail = _joined("@", random.letters(count, 5), random.letters(count, 4))
        return pa.table(
            {
                "id": _ids(last_person(events)),
                "name": names,
                "email_address": _joined("", mail, _same(".com", count)),
                "credit_card": _joined(" ", *(random.digits(count) for _ in range(4))),
                "city": random.choice(CITIES, count),
                "state": random.choice(STATES, count),
                "date_time": self._times(events),
                "extra": random.letters(count, 130, spread=25),
            }
        )

    def _auctions(self, events: Numbers, random: Random) -> pa.Table:
        count = len(events)
        people = last_person(events)
        hot = people // HOT_OF * HOT_OF
        sellers = np.where(random.one_in(HOT_SELLERS, count), active_person(people, random), hot)
        initial = random.prices(count)
        in_flight_ms = IN_FLIGHT * ROUND // AUCTIONS * 1_000 // self.rate
        length_ms = 1 + random.below(np.full(count, max(1, 2 * in_flight_ms)))
        return pa.table(
            {
                "id": _ids(last_auction(events)),
                "item_name": random.letters(count, 11, spread=8),
                "description": random.letters(count, 51, spread=48),
                "initial_bid": initial,
                "reserve": initial + random.prices(count),
                "date_time": self._times(events),
                "expires": _instants(self._times_ms(events) + length_ms),
                "seller": _ids(sellers),
                "category": FIRST_CATEGORY + random.below(np.full(count, CATEGORIES)),
                "extra": random.letters(count, 390, spread=75),
            }
        )

    def _bids(self, events: Numbers, random: Random) -> pa.Table:
        count = len(events)
        auctions, people = last_auction(events), last_person(events)
        hot_auction, hot_bidder = auctions // HOT_OF * HOT_OF, people // HOT_OF * HOT_OF + 1
        others = active_auction(auctions, random)
        bidders = active_person(people, random)
        channel = random.channels(count)
        return pa.table(
            {
                "auction": _ids(np.where(random.one_in(HOT_AUCTIONS, count), others, hot_auction)),
                "bidder": _ids(np.where(random.one_in(HOT_BIDDERS, count), bidders, hot_bidder)),
                "price": random.prices(count),
                "channel": channel,
                "url": _joined("", _same("https://auctions.example/item?via=", count), channel),
                "date_time": self._times(events),
                "extra": random.letters(count, 68, spread=13),
            }
        )

    def _times(self, events: Numbers) -> pa.Array:
        return _instants(self._times_ms(events))

    def _times_ms(self, events: Numbers) -> Numbers:
        return int(BASE_TIME.timestamp()) * 1_000 + events * 1_000 // self.rate


def last_person(events: Numbers) -> Numbers:
    """Return the number of the newest person at each event."""
    return events // ROUND


def last_auction(events: Numbers) -> Numbers:
    """Return the number of the newest auction at each event that is an auction or a bid."""
    place = np.minimum(events % ROUND - PERSONS, AUCTIONS - 1)
    return events // ROUND * AUCTIONS + place


def active_auction(newest: Numbers, random: Random) -> Numbers:
    """Return one of the auctions in flight, or of the next ones, for each event."""
    least = np.maximum(newest - IN_FLIGHT, 0)
    return least + random.below(newest - least + 1 + LEAD)


def active_person(newest: Numbers, random: Random) -> Numbers:
    """Return one of the newest persons, or of the next ones, for each event."""
    active = np.minimum(newest + 1, ACTIVE)
    return newest + 1 - active + random.below(active + LEAD)


class Random:
    """The random numbers of a block."""

    def __init__(self, seed: int, block: int) -> None:
        self._generator = np.random.default_rng([seed, block])

    def below(self, limits: Numbers) -> Numbers:
        """Return a whole number from 0 to each limit, exclusive."""
        return self._generator.integers(0, limits)

    def one_in(self, many: int, count: int) -> npt.NDArray[np.bool_]:
        """Return `count` booleans; one in `many` is True on average."""
        return np.equal(self._generator.integers(0, many, count), 0)

    def prices(self, count: int) -> Numbers:
        """Return prices in cents."""
        return np.rint(10 ** (self._generator.random(count) * 6) * 100).astype(np.int64)

    def choice(self, texts: list[str], count: int) -> pa.Array:
        """Return `count` choices of some texts."""
        return pa.array(texts).take(pa.array(self._generator.integers(0, len(texts), count)))

    def digits(self, count: int) -> pa.Array:
        """Return texts of four digits."""
        return self.choice([f"{number:04d}" for number in range(10_000)], count)

    def channels(self, count: int) -> pa.Array:
        """Return channels, half of which are hot channels on average."""
        hot, any_one = self.choice(HOT_CHANNELS, count), self.below(np.full(count, CHANNELS))
        return pc.if_else(
            pa.array(self.one_in(2, count)),
            _joined("-", _same("channel", count), pa.array(any_one).cast(pa.string())),
            hot,
        )

    def letters(self, count: int, length: int, spread: int = 0) -> pa.Array:
        """Return texts of small letters, `length` plus or minus `spread` long."""
        lengths = self._generator.integers(length - spread, length + spread + 1, count)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        drawn = self._generator.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(drawn))


def _ids(numbers: Numbers) -> pa.Array:
    return pa.array(numbers + FIRST_ID).cast(pa.string())


def _instants(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds * 1_000).cast(pa.timestamp("us", "UTC"))


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(text, count)


def _joined(between: str, *columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*columns, between)
