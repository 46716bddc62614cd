"""Reports for people: progress, warnings, the summary table, failures, and the graph of a flow."""
