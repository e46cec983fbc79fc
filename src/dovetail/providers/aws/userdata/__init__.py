"""What an instance reads when it first starts, in the words of its image family.

Pure text: what a node must know goes in, its user data comes out, to the byte as Karpenter writes it. Asks
nothing of AWS and knows nothing of launch templates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from dovetail.providers.aws.userdata.boot import Boot
from dovetail.providers.aws.userdata.bottlerocket import bottlerocket, image_version
from dovetail.providers.aws.userdata.linux import amazon_linux_2, amazon_linux_2023
from dovetail.providers.aws.userdata.windows import windows

__all__ = ["Boot", "image_version", "render"]


def render(boot: Boot) -> str:
    """The user data of a node, not yet in base64.

    CreateFailed when the class's own user data cannot be merged with ours; ClassNotReady while something
    that nodes of the family need is not known yet.
    """
    return _written(_Sealed(msgspec.msgpack.encode(boot), boot))


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A boot that can be looked up: equal when all of it is."""

    contents: bytes
    boot: Boot = field(compare=False)


@lru_cache(maxsize=1024)
def _written(sealed: _Sealed) -> str:
    """Claims of a pool boot alike, and a burst of them would write the same text a thousand times."""
    return WRITERS.get(sealed.boot.family, _as_given)(sealed.boot)


def _as_given(boot: Boot) -> str:
    """A custom image is told what its author wrote and nothing else."""
    return boot.custom


WRITERS: Final[Mapping[str, Callable[[Boot], str]]] = {
    "AL2": amazon_linux_2,
    "AL2023": amazon_linux_2023,
    "Bottlerocket": bottlerocket,
    "Windows2019": windows,
    "Windows2022": windows,
    "Windows2025": windows,
}
