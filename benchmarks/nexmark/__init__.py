"""The windowed queries of Nexmark, as flows; start with `queries`.

The page ``docs/explanation/nexmark.md`` describes them.

- `auction_house`: the persons, auctions and bids of an online auction house
- `tables`: their Parquet files, a directory for each table
- `queries`: q5, q7, q8, q11 and q12
- `answers`: the same queries in SQL, and the comparison of a flow's result with DuckDB's
- `measuring`: one run of one query, timed
- `processor_time`: the processor time of all processes of a run
- `report`: the table of results, beside the published results of Flink
- `run`: the command
"""
