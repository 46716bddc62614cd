"""Stream progress: the progress of source partitions and streams in event time."""
