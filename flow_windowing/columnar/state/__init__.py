"""State of many keys in columns: clocks, open windows, bounds."""
