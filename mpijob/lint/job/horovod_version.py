"""Which Horovod an image has, and since when horovodrun has which option."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


class HorovodVersion(NamedTuple):
    """A release of Horovod."""

    major: int
    minor: int
    patch: int
    patches: int = 0
    """The number of hvd-elastic's set of patches that it was built with; 0: none, as it is published."""

    def __str__(self) -> str:
        release = f"{self.major}.{self.minor}.{self.patch}"
        return f"{release}+hvdelastic.{self.patches}" if self.patches else release

    @property
    def unpickles_requests(self) -> bool:
        """Whether its launcher and its workers unpickle what anyone sends them (CVE-2024-10190)."""
        return self.patches < WORKER_ADDRESSES


SINCE: Final[Mapping[str, HorovodVersion]] = {
    "--log-with-timestamp": HorovodVersion(0, 21, 0),
    "--log-without-timestamp": HorovodVersion(0, 21, 0),
    "--prefix-output-with-timestamp": HorovodVersion(0, 21, 0),
    "-prefix-timestamp": HorovodVersion(0, 21, 0),
    "--thread-affinity": HorovodVersion(0, 21, 1),
    "--blacklist-cooldown-range": HorovodVersion(0, 24, 0),
    "--min-num-proc": HorovodVersion(0, 25, 0),
    "--max-num-proc": HorovodVersion(0, 25, 0),
    "--network-interfaces": HorovodVersion(0, 25, 0),
    "--torus-allreduce": HorovodVersion(0, 26, 0),
    "--no-torus-allreduce": HorovodVersion(0, 26, 0),
}
"""The first release whose parser takes each option, for those that came after 0.20.0, the first elastic release.

Compared tag by tag, v0.20.0 to v0.28.1: `horovod/runner/launch.py`, `parse_args`."""

WORKER_ADDRESSES: Final = 2
"""The first set with the patch `worker-addresses` (`hvd_elastic/horovod/patches`). A test holds it against the set."""

BUNDLED: Final = HorovodVersion(0, 28, 1, WORKER_ADDRESSES)
"""The Horovod of hvd-elastic's own images."""

_RELEASE: Final = r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[+_-]hvdelastic\.?(\d{1,3}))?(?![\d.])"
_LEADING: Final = re.compile(_RELEASE)
_NAMED: Final = re.compile(r"(?:^|[^a-z])(?:horovod|hvd)[-_]?" + _RELEASE)


def horovod_version(text: str) -> HorovodVersion:
    """The release that a user names: `0.24`, `0.28.1` or `0.28.1+hvdelastic.2`. Raises InvalidInputError."""
    match = _LEADING.fullmatch(text.strip())
    if match is None:
        way_out = "write a release of Horovod, such as 0.28.1"
        raise InvalidInputError([Problem(path="horovod", value=text, what="is not a version", way_out=way_out)])
    return _of(match)


def of_image(image: str | None) -> HorovodVersion | None:
    """The release that an image's name tells; None if it tells none.

    A tag that begins with a number counts only for a repository called horovod, as `horovod/horovod:0.20.3-tf2.3`.
    Elsewhere the number is the user's own, unless the name says whose it is: `train:cuda11-horovod0.24.2`. A `+` stands
    in no tag, so a patched one is told as `train:horovod0.28.1-hvdelastic.2`.
    """
    path, colon, tag = (image or "").lower().partition("@")[0].rpartition(":")
    if not colon or "/" in tag:  # that colon is a registry's port
        path, tag = f"{path}{colon}{tag}", ""
    repository = path.rpartition("/")[2]
    match = _LEADING.match(tag) if repository == "horovod" else None
    match = match or _NAMED.search(tag) or _NAMED.search(repository)
    if match:
        return _of(match)
    return BUNDLED if repository == "hvd-elastic" else None


def _of(match: re.Match[str]) -> HorovodVersion:
    return HorovodVersion(*(int(part or 0) for part in match.groups()))
