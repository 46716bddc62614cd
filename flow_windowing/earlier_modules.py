"""Aliases of modules of earlier versions, which pickles in their checkpoints name."""

from flow.pickles import register_moved_module

_MOVED = {
    "metadata": "contract.metadata",
    "driver": "rules.key_state",
    "waiting": "rules.waiting",
    "clocks": "clocks.clock",
    "event_clock": "clocks.event_clock",
    "windowers": "windowers.windower",
    "aligned": "windowers.aligned",
    "calendar": "windowers.calendar",
    "counts": "windowers.counts",
    "event_sliding": "windowers.event_sliding",
    "sessions": "windowers.sessions",
    "aggregators": "aggregates.aggregator",
    "aggregates": "aggregates.numbers",
    "exact_totals": "aggregates.exact_totals",
    "gathering": "aggregates.collections",
    "value_order": "aggregates.value_order",
}

for _before, _now in _MOVED.items():
    register_moved_module(f"flow_windowing.{_before}", f"flow_windowing.{_now}")

# The classes of this module moved to several modules, and are public names of the package.
register_moved_module("flow_windowing.kept_aggregates", "flow_windowing")
