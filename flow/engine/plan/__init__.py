"""The plan of a flow, and the compiler that makes it."""
