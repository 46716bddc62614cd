"""Sources and sinks, a module for each system; `source` and `sink` have the contracts."""
