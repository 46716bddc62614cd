"""Example flows. The docstring of each module has its subject, its command and its output.

- `flights`: a year of departures in windows of four kinds, joined with the weather; start here
- `word_count`: stateless steps, and a count at the end of the input
- `traffic_lights`: totals of each hour of event time, with a grace for late lines
- `kafka_traffic_lights`: the same over Kafka, with unusable messages in a topic of their own
- `kafka_broker`: a broker of one node for `kafka_traffic_lights`
- `sensor_temperature`: tumbling, hopping and sliding windows side by side
- `flights_lake`: hours with corrections in a Delta table, which DuckDB asks meanwhile
- `early_takings`: early, on-time and late results of each hour, by a trigger
- `last_three_purchases`: windows of three values, whatever their time
- `visits`: sessions with updates as they grow and merge
- `clicks_once`: clicks without repeats, and a state that expires
- `views_and_clicks`: a join within a window
- `local_days`: days of a time zone, 23 or 25 hours long when the clocks change
- `batches_for_an_api`: lists of three posted over HTTP, and calls that are refused
- `enrichment_over_http`: requests to an API, many at a time, with attempts and errors
- `dead_letters`: unreadable lines and late values, written to files of their own
- `orders_and_payments`: a join, and rows without a partner
- `fraud_rules`: a table of rules that change at run time, and payments that they score
- `orders_and_shipments`: an interval join, and orders that were not shipped in time
- `trades_and_quotes`: an as-of join, which finds the quote at the time of each trade
- `top_urls`: the most visited pages of each minute, and figures of the whole site
- `history_then_live`: an archive, then new files, as one input
- `running_totals`: state per key that outlives the process
- `custom_logic`: a custom stateful logic with a timer
- `own_source_and_sink`: a custom source and a custom sink
- `latest_in_redis`: a custom sink of the latest value of each key
"""
