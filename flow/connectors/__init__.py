"""Sources and sinks, one module a system; the contracts for one's own are `source` and `sink`."""
