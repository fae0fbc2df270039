"""Programs: the only place where all parts meet. One command a file, each with ``main(argv)``."""
