"""The finished run that these tests serve."""

from tests.commands.workplace import workplace as workplace
