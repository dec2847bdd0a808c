import pytest

from hvd_elastic.client.connection.proxy_environment import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("excluded", "server", "direct"),
    [
        ("", "https://api.example.com", False),
        ("*", "https://api.example.com", True),
        ("example.com", "https://api.example.com", True),
        ("example.com", "https://example.com", True),
        (".example.com", "https://example.com", False),
        ("*.example.com", "https://api.example.com", True),
        ("ample.com", "https://example.com", False),
        ("other, 10.0.0.0/8", "https://10.1.2.3:6443", True),
        ("10.0.0.0/8", "https://11.1.2.3:6443", False),
        ("10.1.2.3", "https://10.1.2.3:6443", True),
        ("10.1.2.3:6443", "https://10.1.2.3:6443", True),
        ("10.1.2.3:443", "https://10.1.2.3:6443", False),
        ("fd00::/8", "https://[fd00::1]:6443", True),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", True),
        ("", "https://127.0.0.1:6443", True),
        ("", "https://localhost:6443", True),
        ("10.0.0.0/99", "https://10.1.2.3:6443", False),
    ],
)
def test_who_is_reached_directly(excluded: str, server: str, direct: bool) -> None:
    assert proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": excluded}) == ("" if direct else PROXY)


def test_the_schemes_proxy_counts() -> None:
    assert proxy_for("https://a", {"HTTP_PROXY": PROXY}) == ""
    assert proxy_for("http://a", {"http_proxy": "proxy:3128"}) == PROXY
