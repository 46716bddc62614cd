"""Windows of many keys: assigning values, merging sessions, closing."""
