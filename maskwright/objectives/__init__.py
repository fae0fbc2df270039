"""Training objectives, which return the sum of their losses and the count of predictions."""
