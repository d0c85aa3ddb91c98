"""Lists of what users may rely on, one text per kind, and their comparison with those of the last release."""
