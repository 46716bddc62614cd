"""The Spark session, its Java and its JVM, and what their failures mean."""
