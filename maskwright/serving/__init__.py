"""A model behind HTTP: for programs in the format of Hugging Face, for people as a page."""
