"""Which tokens are hidden, and what stands in their place. One strategy a file."""
