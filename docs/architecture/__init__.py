"""The picture of the architecture, drawn from the imports of the code."""
