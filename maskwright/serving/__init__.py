"""A model behind HTTP: the APIs of Hugging Face and OpenAI, and a page to play with."""
