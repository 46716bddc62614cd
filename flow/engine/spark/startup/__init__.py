"""Optional speed-ups of Spark's start and of its workers; results do not depend on them."""
