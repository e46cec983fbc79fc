"""Oracle vectors: inputs, and the answers the original gave for them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "conformance" / "vectors"


def cases(name: str) -> Iterator[dict[str, Any]]:
    """The cases of one vector file, in order: `cases("quantity")` reads `quantity.jsonl.gz`."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
