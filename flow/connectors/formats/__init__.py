"""Formats that files and Kafka share: columns, JSON, CSV and Avro."""
