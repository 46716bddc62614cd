"""The engines on Spark: streaming and batch."""
