"""As-of joins: each left value with the right value that is valid at its time."""
