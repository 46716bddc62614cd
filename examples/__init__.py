"""Flows to run and read; each says at its top what it shows, how to run it, and what it prints.

- `flights`: a year of departures in windows of four kinds, joined with the weather; start here
- `word_count`: steps that keep nothing, and a count at the end of the input
- `traffic_lights`: figures of each hour of event time, with some patience for late lines
- `kafka_traffic_lights`: the same over Kafka, with what cannot be used in a topic of its own
- `kafka_broker`: a broker of one node, to try that on
- `sensor_temperature`: tumbling, hopping and sliding windows side by side
- `last_three_purchases`: windows of so many values, whatever their time
- `visits`: sessions, kept up to date as they grow and merge
- `views_and_clicks`: a join within a window
- `local_days`: days of a time zone, 23 or 25 hours long when the clocks change
- `batches_for_an_api`: lists of three posted over HTTP, and calls that are refused
- `dead_letters`: what cannot be read, and what comes too late, kept apart
- `orders_and_payments`: a join, and what found no partner
- `running_totals`: state per key that outlives the process
- `custom_logic`: a stateful logic of one's own, called when nothing comes
- `own_source_and_sink`: reading from, and writing to, what has no connector
"""
