"""Selection of documents by language, quality, near duplicates and contamination.

A document comes in as it was read; it goes out cleaned and repaired, or it is dropped and counted
with the reason. `selector` has the steps in their order, the other files one of them each; only
near duplicates are found later, by `maskwright.preparation.tasks` from the signatures.
"""
