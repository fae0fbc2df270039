"""Which documents are worth training on, and why the others are not."""
