"""Values of a step in columns: records, timestamps, buffered values, their encoding."""
