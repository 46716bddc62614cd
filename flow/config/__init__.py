"""Configuration of runs: the fields, the places that set them, and advice on the values."""
