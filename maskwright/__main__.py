"""``python -m maskwright`` is ``maskwright``."""

import sys

from maskwright.cli import main

if __name__ == "__main__":
    sys.exit(main())
