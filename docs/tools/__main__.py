"""Run a program that writes documentation: ``python -m docs.tools NAME``; without a name, list all.

They are found and run as benchmarks are, see `benchmarks.__main__`.
"""

import sys

from benchmarks.__main__ import main

if __name__ == "__main__":
    main(sys.argv[1:], "docs.tools")
