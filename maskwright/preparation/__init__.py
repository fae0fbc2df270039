"""Preparation of text: tokenizer, token shards and manifest, on all cores or on a cluster.

What comes in is text as a user names it; what goes out is a prepared folder, the same byte for byte
on every engine. `pipeline` coordinates the stages, `engines` has their list and runs their `tasks`,
which exchange files (`work`). `split` has the rule that holds documents out.
"""
