"""The command line, called in this process."""

import pytest

from maskwright.cli.main import main


class Cli:
    """``cli(*words)`` returns what a command prints, and ``cli.refuse(*words)`` its error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: object) -> tuple[int, str, str]:
        """Return the exit code and what is printed to standard output and error."""
        self._capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:  # --help
            code = int(stop.code or 0)
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def __call__(self, *words: object) -> str:
        code, out, err = self.run(*words)
        assert code == 0, err
        return out

    def refuse(self, *words: object) -> str:
        """Return the only line of a command that ends with exit code 2."""
        code, _, err = self.run(*words)
        [line] = err.splitlines()
        assert code == 2
        return line


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)
