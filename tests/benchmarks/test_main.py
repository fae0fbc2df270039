"""Every benchmark and every program of the documentation is listed with one line, and has help."""

import pytest

from benchmarks.__main__ import list_programs, main


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    listed = capsys.readouterr().out
    programs = list_programs()
    assert {"bench", "training-speed", "crash-test"} <= programs.keys()
    for name, summary in programs.items():
        assert f"  {name} " in listed
        assert summary.endswith(".")


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (package, name)
        for package in ("benchmarks", "docs.tools")
        for name in list_programs(package)
    ],
)
def test_each_has_help(package: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"], package)
    assert ended.value.code == 0
    assert f"python -m {package} {name}" in capsys.readouterr().out


def test_an_unknown_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("nothing is no program of benchmarks. Choose one of ")
