"""Aggregates: functions of the values of a window, for `aggregate_window`."""
