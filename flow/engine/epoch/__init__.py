"""An epoch: its parameters for tasks, such as the system time, and the reports of tasks."""
