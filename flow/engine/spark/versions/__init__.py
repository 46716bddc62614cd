"""The versions of Spark that flows run on, and the differences between them."""
