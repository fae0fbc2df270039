"""Other libraries and the hub: exports of a model, each compared there, and its upload."""
