"""Stream progress: how far source partitions and streams have come in event time."""
