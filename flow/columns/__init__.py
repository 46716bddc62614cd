"""Items in columns: the shapes that items have inside a process, and arithmetic on runs of rows."""
