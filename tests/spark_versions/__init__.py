"""The short list of tests that run on every supported version of Spark.

A batch and a streaming query with every kind of step and state, and the ways of a checkpoint from
one version to another.
"""
