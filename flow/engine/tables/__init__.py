"""Tables: their versions, contents and files."""
