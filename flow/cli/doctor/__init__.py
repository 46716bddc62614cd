"""The checks of ``python -m flow.doctor``, a module for each subject."""
