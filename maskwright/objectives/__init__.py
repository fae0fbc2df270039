"""What is learned. An objective returns the sum of its losses and the count of predictions."""
