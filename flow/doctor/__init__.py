"""The command ``python -m flow.doctor``: check that flows can run here; see `__main__`."""
