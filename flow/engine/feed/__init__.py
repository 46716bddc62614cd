"""The feed: the plan of each epoch, its system time and its input."""
