"""The Notify document: who is told of which decisions, read from YAML with every complaint at its line.

It is a file and no kind in a cluster. Addresses and headers may hold secrets, so no complaint repeats one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec
from msgspec import inspect

from dovetail.api.cron import parse_schedule
from dovetail.api.manifests import Document, ManifestComplaint, Severity, parse_manifests
from dovetail.api.manifests.typed_fields import WrongField, find_unknown_fields, locate_error, suggest_name
from dovetail.api.meta import Record
from dovetail.history.asking import suggest_kind
from dovetail.history.record import RecordKind, RecordSeverity
from dovetail.settings.durations import parse_duration

__all__ = [
    "HeaderFile",
    "Notify",
    "NotifyRule",
    "NotifySink",
    "ParsedNotify",
    "QuietHours",
    "check_notify",
    "describe_complaint",
    "describe_sink",
    "find_way",
    "is_link_local",
    "parse_notify",
]

API_VERSION, KIND = "dovetail.sh/v1alpha1", "Notify"
MOST_SINKS = 40
CLOUDEVENTS, SLACK, TEAMS, TEXT = FORMATS = ("cloudevents", "slack", "teams", "text")
ADDRESSES = "https://…, sns:…, eventbridge:…, file:… or stdout"
LONGEST_DIGEST = timedelta(hours=24)
LONGEST_QUIET = timedelta(days=7)

_DOLLARS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_TOPIC = re.compile(r"sns:arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]+")
_BUS = re.compile(r"eventbridge:arn:aws[a-z-]*:events:[a-z0-9-]+:[0-9]{12}:event-bus/[A-Za-z0-9_./-]+")
# Without digits and capitals, which tokens have.
_SHOWN = re.compile(r"[a-z.-]{0,24}")


class HeaderFile(Record, frozen=True):
    """The file that holds the value of a header, such as a token."""

    file: str


class QuietHours(Record, frozen=True):
    """When a sink is left alone: from each time of a schedule, for so long, but for some kinds."""

    schedule: str
    duration: str
    time_zone: str = "UTC"
    except_kinds: tuple[str, ...] = msgspec.field(default=(), name="except")


class NotifyRule(Record, frozen=True):
    """Which records are wanted: those that match every field given here."""

    kinds: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    min_saving: str = ""
    severity: str = ""


class NotifySink(Record, frozen=True):
    """One address, in what form it is written to, and what it wants to know. Without `when`, everything."""

    name: str
    to: str
    format: str = CLOUDEVENTS
    headers: Mapping[str, HeaderFile | str] = {}
    when: tuple[NotifyRule, ...] = ()
    digest: str = "0s"
    quiet: tuple[QuietHours, ...] = ()

    @property
    def digest_window(self) -> timedelta:
        return parse_duration(self.digest)


class Notify(Record, frozen=True):
    """All sinks, and where the dashboard is that digests link to."""

    api_version: str
    kind: str
    sinks: tuple[NotifySink, ...] = ()
    dashboard: str = ""


class ParsedNotify(NamedTuple):
    """The document, or None and what is wrong with it."""

    notify: Notify | None
    complaints: tuple[ManifestComplaint, ...]


def describe_complaint(complaint: ManifestComplaint) -> str:
    """A complaint in one line: `notify.yaml, line 7: there is no kind "NodeTerminated"; did you mean …`."""
    line = f", line {complaint.line}" if complaint.line is not None else ""
    path = f"{complaint.path}: " if complaint.path else ""
    return f"{complaint.source}{line}: {path}{complaint.message}"


def parse_notify(text: bytes | str, source: str) -> ParsedNotify:
    """Read a Notify document. Never raises: whatever is wrong is a complaint with its line."""
    found = parse_manifests(text, source)
    errors = tuple(each for each in found.complaints if each.severity is Severity.ERROR)
    if errors:
        return ParsedNotify(None, errors)
    if len(found.documents) != 1:
        told = f"it must be one YAML document of kind {KIND}"
        return ParsedNotify(None, (ManifestComplaint(source, None, None, "", told),))
    return check_notify(found.documents[0])


def is_notify(document: Document) -> bool:
    """Whether a document says that it is a Notify."""
    return (document.api_version, document.kind) == (API_VERSION, KIND)


def check_notify(document: Document) -> ParsedNotify:
    """The Notify that a document holds, or what is wrong with it, each at its line."""
    notify, wrong = _convert_document(document.value)
    return ParsedNotify(notify, tuple(_locate_complaint(document, *each) for each in wrong))


def _locate_complaint(document: Document, path: str, message: str) -> ManifestComplaint:
    # What is not there by that name needs no path beside its line.
    shown = "" if message.startswith("there is no kind ") else path
    return ManifestComplaint(document.source, document.line_of(path), None, shown, message)


def _convert_document(value: Mapping[str, Any]) -> tuple[Notify | None, list[WrongField]]:
    if (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        return None, [("kind", f"write apiVersion: {API_VERSION} and kind: {KIND}")]
    wrong = list(find_unknown_fields(dict(value), inspect.type_info(Notify)))
    if wrong:
        return None, wrong
    try:
        notify = msgspec.convert(dict(value), Notify)
    except msgspec.ValidationError as error:
        path, told = locate_error(error)
        quotes = (
            "; put it in quotes" if re.match("Expected (object \\| )?str, got (int|float|bool)", told) else ""
        )
        return None, [(path, told + quotes)]
    wrong = list(_find_complaints(notify))
    return (None if wrong else notify), wrong


def _find_complaints(notify: Notify) -> Iterator[WrongField]:
    if len(notify.sinks) > MOST_SINKS:
        yield "sinks", f"there are {len(notify.sinks)}, and {MOST_SINKS} at most are possible"
    if notify.dashboard and not is_http(notify.dashboard):
        yield "dashboard", "write the URL of the dashboard, as https://dovetail.example.com"
    elif notify.dashboard:
        yield from _check_url("dashboard", notify.dashboard)
    for name, count in Counter(sink.name for sink in notify.sinks).items():
        if count > 1:
            yield "sinks", f"{name} is there {count} times; give each a name of its own"
    for number, sink in enumerate(notify.sinks):
        path = f"sinks[{number}]"
        if not _NAME.fullmatch(sink.name):
            yield f"{path}.name", "a name has small letters, digits and hyphens, and 63 of them at most"
        yield from _check_address(f"{path}.to", sink)
        yield from _check_headers(f"{path}.headers", sink)
        for at, rule in enumerate(sink.when):
            yield from _check_rule(f"{path}.when[{at}]", rule)
        yield from _check_duration(f"{path}.digest", sink.digest, LONGEST_DIGEST)
        for at, quiet in enumerate(sink.quiet):
            yield from _check_quiet(f"{path}.quiet[{at}]", quiet)


def _check_address(path: str, sink: NotifySink) -> Iterator[WrongField]:
    if sink.format not in FORMATS:
        yield (
            f"{path.removesuffix('to')}format",
            f'there is no format "{sink.format}"' + suggest_name(sink.format, FORMATS),
        )
    if is_http(sink.to):
        yield from _check_url(path, sink.to)
    elif sink.to.startswith("file:"):
        if not re.fullmatch(r"file:/[^/].*", sink.to):
            yield path, "a file is named by its whole path, as file:/var/lib/dovetail/told"
    elif sink.to.startswith("sns:"):
        if not _TOPIC.fullmatch(sink.to):
            yield path, "write the ARN of the topic, as sns:arn:aws:sns:<region>:<account>:<name>"
    elif sink.to.startswith("eventbridge:"):
        if not _BUS.fullmatch(sink.to):
            yield (
                path,
                "write the ARN of the bus, as eventbridge:arn:aws:events:<region>:<account>:event-bus/<name>",
            )
        if sink.format != CLOUDEVENTS:
            yield path, f"a bus takes {CLOUDEVENTS}, and not {sink.format}"
    elif sink.to != "stdout":
        yield path, f'"{_shorten_address(sink.to)}" is no address; write {ADDRESSES}'


def find_way(address: str) -> str:
    """How a sink is reached, in a word without secrets: https, http, sns, eventbridge, file or stdout."""
    return address.partition(":")[0]


def describe_sink(sink: NotifySink) -> dict[str, str]:
    """A sink as it may be shown to anybody: neither its address nor its headers."""
    return {
        "name": sink.name,
        "to": find_way(sink.to),
        "format": sink.format,
        "when": "; ".join(map(_describe_rule, sink.when)) or "everything",
        "digest": sink.digest,
        "quiet": "; ".join(map(_describe_quiet, sink.quiet)),
    }


def _describe_rule(rule: NotifyRule) -> str:
    words = [", ".join(rule.kinds or ("any kind",))]
    words += [f"of {', '.join(rule.pools)}"] if rule.pools else []
    words += [f"for {', '.join(rule.reasons)}"] if rule.reasons else []
    words += [f"that saves ${rule.min_saving} an hour"] if rule.min_saving else []
    words += [f"of severity {rule.severity}"] if rule.severity else []
    return " ".join(words)


def _describe_quiet(quiet: QuietHours) -> str:
    excepted = f" except {', '.join(quiet.except_kinds)}" if quiet.except_kinds else ""
    return f"{quiet.schedule} for {quiet.duration} in {quiet.time_zone}{excepted}"


def is_http(address: str) -> bool:
    """Whether a sink is written to over HTTP."""
    return address.startswith(("https://", "http://"))


def _check_url(path: str, address: str) -> Iterator[WrongField]:
    """A URL with a host that is not link-local: nobody's metadata service is to be posted to."""
    try:
        host = urlsplit(address).hostname or ""
        urlsplit(address).port  # noqa: B018 - a port that is no number raises here
    except ValueError:
        yield path, "this URL cannot be read"
        return
    if not host or any(letter.isspace() for letter in address):
        yield path, "this URL cannot be read"
        return
    # Of a name, where it leads is looked at when something is sent.
    if is_link_local(host):
        yield path, "link-local addresses are never written to"


# Where Amazon's machines answer their own: credentials, and what a machine knows of itself.
_METADATA = ip_network("fd00:ec2::/32")
# Addresses of version 4 within those of version 6, as translators write them.
_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("::/96"))


def is_link_local(host: str) -> bool:
    """Whether an address reaches the machine's own link or its metadata service; false for a name.

    An address of version 4 that is written as one of version 6 is the address it leads to.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return any(each.is_link_local or each in _METADATA for each in _list_meanings(address))


def _list_meanings(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    yield address
    if isinstance(address, IPv6Address):
        inner = (address.ipv4_mapped, address.sixtofour)
        yield from (each for each in inner if each is not None)
        if any(address in each for each in _TRANSLATED):
            yield IPv4Address(int(address) & 0xFFFFFFFF)


def _shorten_address(address: str) -> str:
    """The beginning of an address that is none: what follows may be a secret."""
    found = _SHOWN.match(address)
    return found[0] if found else ""


def _check_headers(path: str, sink: NotifySink) -> Iterator[WrongField]:
    if sink.headers and not is_http(sink.to):
        yield path, "only a sink with a URL has headers"
    for name, value in sink.headers.items():
        if not _HEADER.fullmatch(name):
            yield path, "this is no name of a header"
        elif isinstance(value, HeaderFile) and not value.file.startswith("/"):
            yield f"{path}.{name}", "a file is named by its whole path"
        elif isinstance(value, str) and ("\n" in value or "\r" in value):
            yield f"{path}.{name}", "a header is one line"


def _check_rule(path: str, rule: NotifyRule) -> Iterator[WrongField]:
    yield from _check_kinds(f"{path}.kinds", rule.kinds)
    if rule.min_saving and not _DOLLARS.fullmatch(rule.min_saving):
        yield f"{path}.minSaving", 'dollars an hour are written as "0.10"'
    if rule.severity and rule.severity not in list(RecordSeverity):
        known = suggest_name(rule.severity, RecordSeverity)
        yield f"{path}.severity", f'there is no severity "{rule.severity}"{known}'


def _check_kinds(path: str, kinds: Iterable[str]) -> Iterator[WrongField]:
    for number, kind in enumerate(kinds):
        if kind not in list(RecordKind):
            yield f"{path}[{number}]", f'there is no kind "{kind}"{suggest_kind(kind)}'


def _check_quiet(path: str, quiet: QuietHours) -> Iterator[WrongField]:
    if quiet.schedule.startswith("@every"):
        yield f"{path}.schedule", "write five cron fields, such as 0 20 * * *"
    else:
        try:
            parse_schedule(quiet.schedule)
        except ValueError as error:
            yield f"{path}.schedule", f"{error}; write five cron fields, such as 0 20 * * *"
    yield from _check_duration(f"{path}.duration", quiet.duration, LONGEST_QUIET, some=True)
    yield from _check_kinds(f"{path}.except", quiet.except_kinds)
    try:
        ZoneInfo(quiet.time_zone)
    except (KeyError, ValueError, OSError):
        yield f"{path}.timeZone", "there is no such time zone; write a name such as Europe/Berlin"


def _check_duration(path: str, text: str, longest: timedelta, *, some: bool = False) -> Iterator[WrongField]:
    try:
        length = parse_duration(text)
    except (ValueError, OverflowError):
        yield path, f'"{text}" is no duration, such as 5m or 10h'
        return
    if length < timedelta() or (some and not length):
        yield path, f"{text} must be {'more than 0s' if some else '0s or more'}"
    elif length > longest:
        yield path, f"{text} is longer than {longest.days * 24}h"
