"""Steps at work: reading, stateless kernels, keyed steps, levels, outputs."""
