"""Wikipedia from its dumps: XML and wikitext to articles."""
