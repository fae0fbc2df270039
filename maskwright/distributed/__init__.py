"""Several processes, one run: torch's own engine, applied to a model from outside."""
