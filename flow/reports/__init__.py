"""Reports of a run for people: progress, warnings, the summary table, failures."""
