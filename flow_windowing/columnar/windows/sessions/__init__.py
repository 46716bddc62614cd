"""Sessions of many keys at once."""
