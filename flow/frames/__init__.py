"""Streams of a flow as Spark data frames."""
