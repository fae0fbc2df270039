"""Training on several processes, with torch's data parallelism applied to a built model."""
