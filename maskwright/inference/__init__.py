"""Uses of a trained model on texts: filling masks, vectors."""
