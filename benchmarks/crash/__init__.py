"""Pretraining and preparation killed again and again, and what they end with compared."""
