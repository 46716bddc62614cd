"""Items in columns: the layouts of items inside a process, and arithmetic on runs of rows."""
