"""Windows of many keys at once: batches of rows enter, windows open, update and close."""
