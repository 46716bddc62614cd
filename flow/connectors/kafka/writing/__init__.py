"""Writing topics: serializing items, sending messages, transactions."""
