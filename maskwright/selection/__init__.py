"""Selection of documents by language, quality, near duplicates and contamination."""
