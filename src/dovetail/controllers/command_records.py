"""CommandRecords: what becomes of disruption commands, and which nodes are removable or blocked.

decided ─► started ─► done        decided ─► dropped        started ─► taken back
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.situation import Situation
from dovetail.history.drafts import of_choices, of_command, of_commands
from dovetail.history.record import RecordDraft, RecordKind
from dovetail.ports import Clock, DecisionSink
from dovetail.scheduling.model import state_node as views

__all__ = ["CommandRecords"]

STARTED = frozenset((RecordKind.COMMAND_STARTED, RecordKind.COMMAND_TAKEN_BACK, RecordKind.COMMAND_DONE))
UNBEGUN, LEFT_BEHIND = "start", "the process that began it no longer leads; its nodes are free again"

Choices = Sequence[tuple[Method, DisruptionChoice]]


@dataclass(slots=True)
class _OpenCommand:
    """A command that is not over: as it was decided, in which situation, its name and its records."""

    command: Command
    situation: str
    name: str
    decided: str
    started: str = ""


class CommandRecords:
    """Notes commands as they go on, and what each pass says of nodes."""

    def __init__(self, history: DecisionSink, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        # By the key of each of their nodes: no node is in two commands.
        self._open: dict[str, _OpenCommand] = {}
        # What the methods said of each node in the last whole pass: words are made only for what changed.
        self._said: dict[str, tuple[object, ...]] = {}

    def note_decided(self, commands: Iterable[Command], situation: Situation | None = None) -> None:
        """These were decided in this situation, and are to be carried out if a second look agrees."""
        self._open = {key: each for key, each in self._open.items() if each.started}
        if not self._history.recording:
            return
        listed, digest = list(commands), self._digest(situation)
        for command in listed:
            self._decide_command(command, digest)
        self._history.note_verdicts(of_commands(listed, self._history.verdicts), digest)

    def _digest(self, situation: Situation | None) -> str:
        return "" if situation is None else self._history.digest_situation(situation)

    def _decide_command(self, command: Command, situation: str = "") -> _OpenCommand:
        keys = [candidate.key for candidate in command.candidates]
        name = sha256(" ".join((self._clock.now().isoformat(), *keys)).encode()).hexdigest()[:8]
        draft = of_command(RecordKind.COMMAND_DECIDED, command, name)
        opened = _OpenCommand(
            command, situation, name, self._history.note_decision(draft, situation=situation)
        )
        self._open |= dict.fromkeys(keys, opened)
        return opened

    def note_dropped(self, command: Command, which: str, why: str = "") -> None:
        """A second look disagreed, in this respect."""
        opened = self._close(command)
        if opened is not None:
            self._note(RecordKind.COMMAND_DROPPED, command, opened.name, opened.decided, which, why)

    def note_started(self, command: Command) -> str:
        """Its nodes are marked; the id of the record, which causes what follows.

        It is told as it was decided, and as `plan --disruption` tells it of that situation. A second look may
        leave nodes out of it; then it is told as it is, and as what it was decided.
        """
        if not self._history.recording:
            return ""
        opened = self._open.get(command.candidates[0].key) or self._decide_command(command)
        decided, whole = opened.command, len(command.candidates) == len(opened.command.candidates)
        draft = of_command(
            RecordKind.COMMAND_STARTED,
            decided if whole else command,
            opened.name,
            why="" if whole else f"decided as {decided.sentence}; {decided.saving}",
        )
        opened.started = self._history.note_decision(draft, parent=opened.decided, situation=opened.situation)
        return opened.started

    def note_done(self, command: Command) -> None:
        """The end of all its nodes was asked for."""
        opened = self._close(command)
        if opened is not None:
            self._note(RecordKind.COMMAND_DONE, command, opened.name, opened.started)

    def note_taken_back(self, command: Command, why: str) -> None:
        """Its nodes are free again; one that did not even start was dropped."""
        opened = self._close(command)
        if opened is None:
            return
        if opened.started:
            self._note(RecordKind.COMMAND_TAKEN_BACK, command, opened.name, opened.started, "", why)
        else:
            self._note(RecordKind.COMMAND_DROPPED, command, opened.name, opened.decided, UNBEGUN, why)

    def note_left_behind(self, claims: Iterable[str]) -> None:
        """Marks of a process that led before are taken off these NodeClaims: its commands are over."""
        for name in claims:
            found = self._history.find_record(name, STARTED)
            if found is None or found.kind is not RecordKind.COMMAND_STARTED:
                continue
            draft = RecordDraft(
                kind=RecordKind.COMMAND_TAKEN_BACK,
                subject=found.subject,
                reason=found.reason,
                message=LEFT_BEHIND,
                pool=found.pool,
                names=found.names,
            )
            self._history.note_decision(draft, parent=found.id)

    def note_pass(
        self, inputs: DisruptionInput, choices: Choices, situation: Situation | None = None
    ) -> None:
        """All methods were asked and none has a command: why each node is blocked, where that changed."""
        if not self._history.recording:
            return
        said: dict[str, list[object]] = {}
        for method, choice in choices:
            for stays in choice.blocked:
                said.setdefault(views.read_provider_id(stays.state), []).append(
                    (method, stays.blocked_reason, stays.pod)
                )
        now = {
            key: tuple(said.get(key, ()))
            for state in inputs.snapshot.nodes
            if (key := views.read_provider_id(state))
        }
        changed = frozenset(key for key, words in now.items() if self._said.get(key) != words)
        self._said = now
        if changed:
            verdicts = of_choices(inputs, choices, self._history.verdicts, changed)
            self._history.note_verdicts(verdicts, self._digest(situation) if verdicts else "")

    def settle_verdicts(self) -> None:
        """Record verdicts that have lasted by now, though nothing new is known."""
        self._history.note_verdicts(())

    def _close(self, command: Command) -> _OpenCommand | None:
        found = [self._open.pop(candidate.key, None) for candidate in command.candidates]
        return next((each for each in found if each is not None), None)

    def _note(
        self, kind: RecordKind, command: Command, name: str, parent: str, reason: str = "", why: str = ""
    ) -> str:
        return self._history.note_decision(
            of_command(kind, command, name, reason=reason, why=why), parent=parent
        )
