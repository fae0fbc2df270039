"""What is printed cannot steer a terminal, and JSON still reads back the same."""

import io
import json

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from maskwright import console
from maskwright.console import Console, Pulse, escape_controls, say, say_json, tell
from maskwright.objectives.mlm import MaskedTokens
from maskwright.train.reporting import Panel

# Set the title, clear the screen, go back to the line's beginning, turn the direction of text.
EVIL = "a\x1b]0;owned\x07\x1b[2J\rb\x9b31m\x7f\u202ec\ud800"
SHOWN = r"a\x1b]0;owned\x07\x1b[2J\rb\x9b31m\x7f\u202ec\ud800"


def test_control_characters_are_escaped_and_ends_of_lines_are_not() -> None:
    assert escape_controls(EVIL) == SHOWN
    assert escape_controls("a\tb\nc é 한 \u200d") == "a\tb\nc é 한 \u200d"


def test_all_ways_to_print_escape(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    tell(EVIL)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")
    say_json({EVIL: [EVIL, "é"]})
    printed = capsys.readouterr().out
    assert escape_controls(printed) == printed
    assert json.loads(printed) == {EVIL: [EVIL, "é"]}
    assert "é" in printed


def show(*things: object, terminal: bool = True) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=200, color_system="truecolor")
    for thing in things:
        console.print(thing, markup=False)
    return stream.getvalue()


def test_a_console_prints_its_own_control_characters_only() -> None:
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(Text(EVIL, style="red"))
    printed = show(EVIL, Text(EVIL, style="bold"), table)
    for raw in ("\x1b]", "\x1b[2J", "\r", "\x9b", "\x7f", "\u202e", "\x07"):
        assert raw not in printed
    assert printed.count(r"\x1b]0;owned") >= 4  # in cells of tables as much of it as has room
    assert "\x1b[1m" in printed  # bold, of ours


def test_the_time_left_does_not_count_compiling() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=200)
    counts = {"split": "train", "step": 1, "tokens": 1}
    with Panel(MaskedTokens.scores, console) as panel:
        panel.show({**counts, "seconds": 60.0}, 0.01)
        panel.show({**counts, "seconds": 66.0}, 0.02)
    assert "1:06 9:48 left" in stream.getvalue()


def test_a_live_panel_escapes_what_a_run_says() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=200)
    panel = Panel(MaskedTokens.scores, console)
    record = {"split": "valid", "step": 1, "tokens": 1, "seconds": 1.0, f"loss/{EVIL}": 1.0}
    with panel:
        panel.show({**record, "samples": [f"✓ {EVIL}"]}, 0.5)
    with Live(EVIL, console=console):
        pass
    printed = stream.getvalue()
    assert r"loss on a\x1b]0;owned" in printed
    for raw in ("\x1b]", "\x1b[2J", "\x9b", "\u202e"):
        assert raw not in printed


def test_between_two_lines_there_is_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    beating = Pulse(said.append)
    for now[0], line in [(129.0, "too early"), (130.0, "a"), (159.0, "too early"), (160.0, "b")]:
        beating.beat(line)
    beating.say("at once")
    now[0] = 189.0
    beating.beat("too early")
    assert said == ["a", "b", "at once"]
