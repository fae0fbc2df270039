"""Every benchmark is listed with one line, and has help."""

import pytest

from benchmarks.__main__ import list_programs, main


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    listed = capsys.readouterr().out
    programs = list_programs()
    assert {"bench", "training-speed", "crash-test", "fuzz", "report"} <= programs.keys()
    for name, summary in programs.items():
        assert f"  {name} " in listed
        assert summary.endswith(".")


@pytest.mark.parametrize("name", list_programs())
def test_each_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m benchmarks {name}" in capsys.readouterr().out


def test_an_unknown_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    assert "'nothing'" in capsys.readouterr().err
