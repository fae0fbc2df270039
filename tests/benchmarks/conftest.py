"""Fixtures of the folder."""

from tests.commands.workplace import workplace as workplace
