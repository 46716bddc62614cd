"""The feed: decides what each epoch reads, and at which system time."""
