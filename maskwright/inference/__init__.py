"""Inference with a trained model: predictions for masks, and text vectors."""
