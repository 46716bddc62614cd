"""Flows to run and read; each says at its top what it shows, how to run it, and what it prints.

- `flights`: a year of departures by airport and hour, joined with the weather; start here
- `word_count`: steps that keep nothing, and a count at the end of the input
- `traffic_lights`: counts in windows of event time
- `orders_and_payments`: a join, and what found no partner
- `running_totals`: state per key that outlives the process
- `batches_for_an_api`: lists gathered by size or timeout, and calls that may fail
- `dead_letters`: what cannot be read, and what comes too late, kept apart
- `custom_logic`: a stateful logic of one's own, called when nothing comes
- `own_source_and_sink`: reading from, and writing to, what has no connector
"""
