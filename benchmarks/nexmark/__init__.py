"""The windowed queries of Nexmark, as flows: see ``docs/nexmark.md``, and start with `queries`.

- `auction_house`: what the persons, auctions and bids of an online auction house look like
- `tables`: writing them to Parquet files, a directory for each
- `queries`: q5, q7, q8, q11 and q12
- `answers`: the same queries in SQL, and whether a flow's result is what DuckDB says
- `measuring`: one run of one query, timed
- `processor_time`: how much of the processors all processes of a run have used
- `report`: the table of results, beside what has been published of Flink
- `run`: the command
"""
