"""Connections to the brokers of a Kafka cluster, and messages as users see them."""
