"""The finished run that these tests look at."""

import os

from tests.commands.workplace import workplace as workplace

# A panic of the tokenizers library is expected here, and its stack trace is long.
os.environ["RUST_BACKTRACE"] = "0"
