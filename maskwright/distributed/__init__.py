"""Several processes for one run: torch's own parallelism, applied to a model from outside."""
