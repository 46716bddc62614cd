"""Planning in the process that starts a flow: calls of planners, and the tables of a run."""
