"""Writing to topics: keys, values, headers and times of messages, and transactions."""
