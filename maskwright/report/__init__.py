"""Run directories and counts come in; HTML pages without external resources, and charts, go out."""
