"""Reading of topics: plans of epochs, ranges of partitions, items of messages."""
