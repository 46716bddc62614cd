"""The stored form of a key's state."""

from __future__ import annotations

import pickle
import pickletools

from flow_windowing.contract.arrival import Arrival
from flow_windowing.rules.key_state import RetainedValue


def test_a_retained_value_is_stored_under_the_name_in_earlier_checkpoints() -> None:
    value = RetainedValue(5, Arrival(5, 1, 0), "x")
    content = pickle.dumps(value, 5)
    names = [argument for _, argument, _ in pickletools.genops(content)]
    assert {"flow_windowing.rules.key_state", "Kept"} <= set(map(str, names))
    restored = pickle.loads(content)
    assert type(restored) is RetainedValue
    assert restored == value
