"""Inference with a trained model: predictions for masks, and text vectors.

A model folder and texts come in, all encoded and batched by `text_model`; guesses (`fill_mask`,
`samples`) or vectors and the nearest texts (`embed`) go out.
"""
