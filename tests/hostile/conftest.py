"""The finished run that these tests look at."""

from tests.commands.workplace import workplace as workplace
