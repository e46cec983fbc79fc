"""Hold many decoded pods in a process of their own, and say how much memory that took at most.

Run as `python -m tests.bench.hold_pods FOLDER COUNT`: the pages in FOLDER are decoded over and over, with
other names and uids each time round, until COUNT pods are held.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from dovetail.api.codec import Interner, decode_list
from dovetail.api.pod import Pod

from .workload import MARK


def main(folder: Path, count: int) -> None:
    empty = _peak()
    table, held, decoding, round_number = Interner(), list[Pod](), 0.0, 0
    files = sorted(folder.glob("*.json"))
    while len(held) < count:
        for file in files:
            page = file.read_bytes().replace(MARK.encode(), b"%02x" % round_number)
            begun = time.process_time()
            held.extend(decode_list(Pod, page, table).items)
            decoding += time.process_time() - begun
        round_number += 1
    del held[count:]
    names = len({pod.uid for pod in held})
    print(
        json.dumps(
            {"peak": _peak(), "empty": empty, "decoding": decoding, "distinct": names, "shapes": len(table)}
        )
    )


def _peak() -> int:
    """The most memory this process ever held, in bytes. Unlike getrusage, it does not count the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kilobytes) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
