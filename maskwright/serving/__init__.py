"""A model behind HTTP: the APIs of Hugging Face and OpenAI, and a page to play with.

A request passes the limits of `guard`, is checked against `schemas` in `app`, waits in the
`batcher` for others, and is answered by one of the `pipelines`.
"""
