"""The comparison of the speed of windows; ``benchmarks/compare.py`` runs it.

`works` lists the comparisons and their goals. The contestants of this library are `ours`,
`small_epochs` and `large_state`; the others are `spark_peer`, `bytewax_peer`, `duckdb_peer` and
`polars_peer`. All read the events of `data`. Each measurement is a process of its own
(`contestant`), and `measuring` checks that all contestants have the same answer (`answers`).
"""
