"""commitment.mirror: Commitments follow what AWS says the account has committed to.

The mirror owns its Commitments by server-side apply: every field of the spec but `share` and `observe`, which
are a person's. It decides nothing, and a Commitment that a person wrote is never changed or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.commitment import CURRENT, PLANS, USD, Commitment, CommitmentSpec
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.aws import AwsDenied, AwsError
from dovetail.controllers.base import SOON, Backoff, Cache, PeriodicController, Result, requeue_after
from dovetail.controllers.commitments import DENIED
from dovetail.controllers.context import ControllerContext
from dovetail.errors import Conflict, Gone, Retry
from dovetail.logs import get_logger
from dovetail.providers.aws.commitments import (
    DESCRIBE_PLANS,
    DESCRIBE_RATES,
    DESCRIBE_RESERVED,
    PLAN_PREFIX,
    RESERVED_PREFIX,
    CommitmentReader,
    choose_rates,
)

__all__ = ["CommitmentMirror"]

EVERY: Final = 30 * 60.0
NOT_SERVED_EVERY: Final = 300.0
RATES_EVERY: Final = 24 * 3600.0
KEPT_FOR: Final = timedelta(days=7)
MANAGER: Final = "dovetail-commitments"
SOURCE: Final = "aws"
# Says what AWS denies while there is no Commitment that could.
DENIED_NAME: Final = "aws-denied"
NOTHING: Final = CommitmentSpec(hourly="0.00")
log = get_logger()


@dataclass(slots=True)
class AccountCommitments:
    """What AWS said in one round: by prefix what there is, what it denied, and what went wrong."""

    found: dict[str, dict[str, CommitmentSpec]] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    troubles: list[AwsError] = field(default_factory=list)


class CommitmentMirror(PeriodicController):
    """Every half an hour: creates, updates and ends the Commitments that mirror plans and reservations."""

    name = "commitment.mirror"
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(
        self, context: ControllerContext, reader: CommitmentReader, commitments: Cache[Commitment]
    ) -> None:
        self._context = context
        self._kube, self._clock = context.kube, context.clock
        self._reader = reader
        self._commitments = commitments
        # Since when rates are known, by the name of their plan; a new leader reads them anew.
        self._rates_read: dict[str, float] = {}
        # Commitments that AWS did not tell of in the last round: once may be a slip of its memory.
        self._missing: set[str] = set()

    async def reconcile(self, key: str) -> Result:
        told = await self._read_account()
        try:
            mirrored = await self._mirror_found(told)
            await self._delete_ended(mirrored)
            await self._refresh_rates(mirrored, told)
            await self._tell_denied(mirrored, told.denied)
        except Conflict:
            return SOON  # somebody wrote meanwhile: look again
        except Gone:
            return requeue_after(NOT_SERVED_EVERY)  # the kind is not installed, or was just deleted
        if told.troubles:
            raise Retry("; ".join(map(str, told.troubles))) from told.troubles[0]
        return requeue_after(EVERY)

    async def _read_account(self) -> AccountCommitments:
        told = AccountCommitments()
        for prefix, action, read in (
            (PLAN_PREFIX, DESCRIBE_PLANS, self._reader.read_plans),
            (RESERVED_PREFIX, DESCRIBE_RESERVED, self._reader.read_reserved),
        ):
            try:
                told.found[prefix] = await read()
            except AwsDenied as error:
                self._note_denied(told, action, error)
            except AwsError as error:
                told.troubles.append(error)
        return told

    def _note_denied(self, told: AccountCommitments, action: str, error: AwsDenied) -> None:
        told.denied.add(action)
        log.warning(
            "AWS denies what commitments need, so these count for nothing", action=action, code=error.code
        )

    # Objects

    async def _mirror_found(self, told: AccountCommitments) -> dict[str, Commitment]:
        """Write what differs; the Commitments that are mirrored now, by name."""
        stored = {each.name: each for each in self._commitments if is_mirrored(each)}
        kept = {name: each for name, each in stored.items() if name != DENIED_NAME}
        for name, spec in self._list_wanted(kept, told):
            before = stored.get(name) or await self._find_stored(name)
            if before is not None and not is_mirrored(before):
                continue  # a person's, by the same name
            if before is None or not _says_the_same(before, spec):
                before = await self._apply(name, spec)
            kept[name] = before
        return kept

    def _list_wanted(
        self, stored: Mapping[str, Commitment], told: AccountCommitments
    ) -> Iterator[tuple[str, CommitmentSpec]]:
        """What there is, and what there was and AWS tells of no more: that has ended."""
        now = self._clock.now().replace(microsecond=0)
        missing: set[str] = set()
        for prefix, found in told.found.items():
            yield from found.items()
            for name, each in stored.items():
                if not name.startswith(prefix) or name in found or _ends_before(each, now):
                    continue
                missing.add(name)
                if name in self._missing:
                    yield name, replace(each.spec, ends=now)
        self._missing = missing

    async def _find_stored(self, name: str) -> Commitment | None:
        """The object itself, as caches may be late and a person's must not be taken over."""
        try:
            return await self._kube.get(Commitment, name)
        except Gone:
            return None

    async def _apply(self, name: str, spec: CommitmentSpec) -> Commitment:
        """Write the fields that are the mirror's: all but those that a person says."""
        own = replace(spec, share=CommitmentSpec().share, observe=CommitmentSpec().observe)
        own = replace(own, rates=None, discount=None)
        meta = ObjectMeta(name=name, labels={labels.COMMITMENT_SOURCE: SOURCE})
        return await self._kube.apply(Commitment(metadata=meta, spec=own), manager=MANAGER, force=True)

    async def _delete_ended(self, mirrored: dict[str, Commitment]) -> None:
        for name, each in list(mirrored.items()):
            if _ends_before(each, self._clock.now() - KEPT_FOR):
                await self._delete(each)
                del mirrored[name]

    async def _delete(self, commitment: Commitment) -> None:
        try:
            await self._kube.delete(commitment, guarded=True)
        except Gone:
            return

    # Rates

    async def _refresh_rates(self, mirrored: dict[str, Commitment], told: AccountCommitments) -> None:
        running = {claim.labels.get(labels.INSTANCE_TYPE, "") for claim in self._context.claims}
        now = self._clock.monotonic()
        for name in told.found.get(PLAN_PREFIX, {}):
            each = mirrored.get(name)
            fresh = now - self._rates_read.get(name, -RATES_EVERY) < RATES_EVERY
            if each is None or fresh or each.spec.currency != USD:
                continue
            try:
                rates = choose_rates(await self._reader.read_rates(name), running)
            except AwsDenied as error:
                self._note_denied(told, DESCRIBE_RATES, error)
                return
            except AwsError as error:
                told.troubles.append(error)
                continue
            after = replace(each, status=replace(each.status, rates=rates))
            mirrored[name] = await self._kube.patch(each, after, status=True, guarded=True)
            self._rates_read[name] = now

    # What AWS denies

    async def _tell_denied(self, mirrored: dict[str, Commitment], denied: set[str]) -> None:
        """Say on every Commitment which permission is missing for it, and take that back when it is not."""
        for each in mirrored.values():
            await self._set_denied(each, sorted(denied & _list_needs(each)))
        kinds = {PLAN_PREFIX: DESCRIBE_PLANS, RESERVED_PREFIX: DESCRIBE_RESERVED}
        untold = sorted(
            action
            for prefix, action in kinds.items()
            if action in denied and not any(name.startswith(prefix) for name in mirrored)
        )
        stored = self._commitments.get(DENIED_NAME)
        if untold:
            if stored is None or not is_mirrored(stored):
                stored = await self._find_stored(DENIED_NAME)
            if stored is None:
                stored = await self._apply(DENIED_NAME, NOTHING)
            if is_mirrored(stored):
                await self._set_denied(stored, untold)
        elif stored is not None and is_mirrored(stored):
            await self._delete(stored)

    async def _set_denied(self, commitment: Commitment, actions: list[str]) -> None:
        found = conditions.find_condition(commitment, CURRENT)
        if actions:
            told = (
                f"AWS denies {' and '.join(actions)}; allow it in the policy of the controller's role, "
                "or set COMMITMENTS=Off"
            )
            said = Condition(
                type=CURRENT,
                status=conditions.FALSE,
                reason=DENIED,
                message=told,
                observed_generation=commitment.metadata.generation,
            )
            after = conditions.set_condition(commitment, said, self._clock.now(), conditions.ROOTLESS)
        elif found is not None and found.reason == DENIED:
            after = conditions.clear_condition(commitment, CURRENT, conditions.ROOTLESS)
        else:
            return
        await self._kube.patch(commitment, after, status=True, guarded=True)


def is_mirrored(commitment: Commitment) -> bool:
    """Whether the mirror made it: a person's has neither the label nor such a name."""
    return commitment.labels.get(labels.COMMITMENT_SOURCE) == SOURCE and commitment.name.startswith(
        (PLAN_PREFIX, RESERVED_PREFIX, DENIED_NAME)
    )


def _says_the_same(stored: Commitment, spec: CommitmentSpec) -> bool:
    known = stored.spec
    theirs = replace(
        spec, share=known.share, observe=known.observe, rates=known.rates, discount=known.discount
    )
    return theirs == known


def _ends_before(commitment: Commitment, when: datetime) -> bool:
    ends = commitment.spec.ends
    return ends is not None and ends <= when


def _list_needs(commitment: Commitment) -> set[str]:
    """The actions without which nothing is known of it."""
    if commitment.spec.kind in PLANS:
        return {DESCRIBE_PLANS, DESCRIBE_RATES}
    return {DESCRIBE_RESERVED}
