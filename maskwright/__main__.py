"""``python -m maskwright`` is ``maskwright``."""

import sys

from maskwright.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
