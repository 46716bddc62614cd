"""The status of a run: its graph, counts, rates and epochs, and the metrics made from them."""
