"""ShadowState: what a follower of a shadow had found when a segment began, kept beside the recording.

A segment begins with a keyframe, so a shadow that was restarted goes on there: it takes in what it had found
before, and reads the recording from that segment on. Whoever follows other rules, or is of another version,
begins at the recording's first segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import msgspec

from dovetail import __version__
from dovetail.api.meta import Record
from dovetail.app.recordings import read_beside, write_beside
from dovetail.errors import BadInput
from dovetail.history.shadow import ShadowReport
from dovetail.history.shadow_claim import TwinBill
from dovetail.play.shadow_twins import CALIBRATION, DIFFERENCES, TWIN, ShadowTwins

__all__ = ["ShadowState", "hash_rules", "list_segments_left", "read_state", "write_state"]

FORMAT = "dovetail-shadow-state/1"
RESULTS: Mapping[str, type[ShadowReport | TwinBill]] = {
    DIFFERENCES: ShadowReport,
    TWIN: TwinBill,
    CALIBRATION: TwinBill,
}


class ShadowState(Record, frozen=True):
    """What was found before a segment, by whom, and under which rules."""

    rules: str
    segment: str
    result: msgspec.Raw
    format: str = FORMAT


def hash_rules(role: str, twins: ShadowTwins) -> str:
    """What two followers have in common that find the same in the same recording."""
    if role == CALIBRATION:  # it tries nothing
        twins = replace(ShadowTwins(), seed=twins.seed, restart=twins.restart)
    told = (__version__, role, twins.choices, twins.settings, twins.manifests, twins.seed, twins.restart)
    return sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()


def read_state(place: str, role: str, twins: ShadowTwins) -> ShadowState | None:
    """What a follower of these rules had found when it was seen last; None where it begins anew.

    BadInput where something is kept that nobody can read.
    """
    name = _name_state(role)
    try:
        data = read_beside(place, name)
        state = msgspec.json.decode(data, type=ShadowState) if data else None
        if state is not None and role in RESULTS:
            msgspec.json.decode(state.result, type=RESULTS[role])
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(
            f"what a shadow had found before cannot be read from {place}/{name} ({error}); "
            "all of its recording is taken in once more"
        ) from error
    fits = state is not None and state.format == FORMAT and state.rules == hash_rules(role, twins)
    return state if fits else None


def write_state(place: str, role: str, state: ShadowState) -> None:
    """Keep it; what was kept before is replaced."""
    write_beside(place, _name_state(role), msgspec.json.encode(state))


def list_segments_left(state: ShadowState | None, names: Sequence[str]) -> list[str] | None:
    """The segments that are still to be taken in after a state; None where it is of another recording."""
    if state is None or state.segment not in names:
        return None
    return list(names[names.index(state.segment) :])


def _name_state(role: str) -> str:
    return f"shadow-{role}.json"
