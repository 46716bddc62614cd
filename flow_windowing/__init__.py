"""Windowing: clocks, windowers, and operators. Use as ``import flow_windowing as win``."""

from flow_windowing.clocks import Clock, ClockLogic, EventClock, SystemClock
from flow_windowing.driver import WindowLogic
from flow_windowing.metadata import LateReason, LateValue, WindowMetadata
from flow_windowing.operators import WindowOut, collect_window, fold_window, window
from flow_windowing.windowers import Opened, TumblingWindower, Windower, WindowerLogic

__all__ = [
    "Clock",
    "ClockLogic",
    "EventClock",
    "LateReason",
    "LateValue",
    "Opened",
    "SystemClock",
    "TumblingWindower",
    "WindowLogic",
    "WindowMetadata",
    "WindowOut",
    "Windower",
    "WindowerLogic",
    "collect_window",
    "fold_window",
    "window",
]
