"""The flows that run in processes of their own, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flow import Dataflow
from tests.faults import clockwork, market, market_inputs, shop
from tests.faults.shop import Size


class KilledFlow(NamedTuple):
    """A flow with its inputs.

    Attributes:
        make_flow: returns the flow over the inputs in a folder, of a size, with a fault in it.
        write_inputs: writes the inputs into a folder.
    """

    make_flow: Callable[..., Dataflow]
    write_inputs: Callable[[Path, Size], Any]


FLOWS: Mapping[str, KilledFlow] = {
    "shop": KilledFlow(shop.make_flow, shop.write_inputs),
    "market": KilledFlow(market.make_flow, market_inputs.write_inputs),
    "clockwork": KilledFlow(clockwork.make_flow, lambda home, size: None),
}
