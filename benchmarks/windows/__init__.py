"""How fast windows are worked out, here and elsewhere; ``benchmarks/compare.py`` runs it all.

`works` lists what is compared with what, and what each comparison must reach. The contestants are
`ours`, `small_epochs` and `large_state` on this side, and `spark_peer`, `bytewax_peer`,
`duckdb_peer` and `polars_peer` on the other. All read what `data` makes, each measurement is a
process of its own (`contestant`), and `measuring` sees that all give the same answer (`answers`).
"""
