"""What all tests of hostile input share."""

import os

# A panic of the tokenizers library is expected here, and its stack trace is long.
os.environ["RUST_BACKTRACE"] = "0"
