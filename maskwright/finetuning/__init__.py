"""Fine-tuning: a model folder and labeled text in, a model that predicts labels out."""
