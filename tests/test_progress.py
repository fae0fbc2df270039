import pytest

from maskwright import progress
from maskwright.progress import Pulse


def test_between_two_lines_there_is_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    beating = Pulse(said.append)
    for now[0], line in [(129.0, "too early"), (130.0, "a"), (159.0, "too early"), (160.0, "b")]:
        beating.beat(line)
    beating.say("at once")
    now[0] = 189.0
    beating.beat("too early")
    assert said == ["a", "b", "at once"]
