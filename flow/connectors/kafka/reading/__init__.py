"""Reading topics: planning epochs, reading ranges, turning bytes into items."""
