import pytest

from maskwright.serving.hosts import AllowedHosts, is_loopback

LOCAL = ("localhost", "LOCALHOST:8000", "localhost.", "a.localhost:80", "127.0.0.1:8000")
LOCAL += ("127.5.5.5", "[::1]:8000", "[::1]")
FOREIGN = ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example")
FOREIGN += ("notlocalhost", "evil.example:80@localhost", ":8000", "[evil.example]:8000")


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "::", "192.0.2.7", "my.host"])
@pytest.mark.parametrize("host", [*LOCAL, *FOREIGN])
def test_names_of_this_machine_are_taken_and_others_are_not(listening: str, host: str) -> None:
    assert AllowedHosts(listening).allow(host) == (host in LOCAL)


def test_what_is_listened_on_and_what_is_named_is_taken() -> None:
    hosts = AllowedHosts("192.0.2.7", ["model.example", "OTHER.example"])
    assert all(map(hosts.allow, ["192.0.2.7:80", "Model.example:8000", "other.example"]))
    assert not hosts.allow("192.0.2.8")
    assert not hosts.allow("a.model.example")


def test_addresses_are_taken_where_any_is_listened_on() -> None:
    assert AllowedHosts("0.0.0.0").allow("10.1.2.3:8000")
    assert AllowedHosts("::").allow("[2001:db8::1]:8000")
    assert not AllowedHosts("127.0.0.1").allow("10.1.2.3:8000")


def test_only_loopback_is_for_this_machine_alone() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "192.0.2.7", "my.host"]))
