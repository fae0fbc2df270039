"""Fine-tuning: from a model folder and labelled text to a model that answers."""
