"""Fine-tuning: from a model folder and labeled text to a model that answers."""
