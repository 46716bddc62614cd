"""Values in columns: timestamps, buffered values, stored values."""
