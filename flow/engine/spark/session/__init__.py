"""The Spark session, its Java and its JVM, and the causes of their failures."""
