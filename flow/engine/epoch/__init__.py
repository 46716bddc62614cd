"""An epoch: its system time and other facts that tasks are given, and what tasks report."""
