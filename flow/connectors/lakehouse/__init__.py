"""Parts that the connectors to table formats, Delta Lake and Apache Iceberg, have in common."""
