"""The command ``python -m flow.doctor``: check that flows can run here; see `flow.cli.doctor`."""
