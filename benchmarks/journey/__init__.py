"""The way of a row: the product's functions that run between a file of input and one of output.

`run` runs a small flow with the batch engine, while `tracing` records functions in the driver and,
through `traced_daemon`, in the Python workers.
"""
