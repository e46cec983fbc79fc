"""Reading many objects: which match, at which revision, and in pages of one snapshot."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.selectors import EVERYTHING, Selector
from dovetail.sim.kube.status import ApiError, bad_request, expired, invalid_kind, version_too_large
from dovetail.sim.kube.views import through
from dovetail.sim.kube.watch import parse_revision

if TYPE_CHECKING:
    from dovetail.sim.kube.store import Bucket, Key, Record, Store
    from dovetail.sim.kube.types import TypeInfo


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list asks for."""

    namespace: str = ""
    selector: Selector = EVERYTHING
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of one snapshot, and how to get the next ones."""

    records: list[Record]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct, frozen=True):
    rv: int
    ns: str
    name: str


def matching(bucket: Bucket, info: TypeInfo, namespace: str, selector: Selector) -> list[Record]:
    """Current records that match, in order, as this version shows them."""
    records = (through(record, info) for record in _candidates(bucket, namespace, selector))
    if selector.everything:
        return list(records)
    return [record for record in records if selector(record.obj)]


def _candidates(bucket: Bucket, namespace: str, selector: Selector) -> Iterable[Record]:
    name, node = selector.fixed("metadata.name"), selector.fixed("spec.nodeName")
    if name and namespace:
        found = bucket.records.get((namespace, name))
        return [found] if found else []
    if node:
        bound = bucket.by_node.get(node, {})
        return [bound[key] for key in sorted(bound) if not namespace or key[0] == namespace]
    return bucket.in_namespace(namespace)


def list_page(store: Store, info: TypeInfo, options: ListOptions) -> Page:
    """One page; the first page of a list without a limit is the whole list."""
    _check(options)
    bucket = store.bucket(info.storage)
    if options.continue_token:
        token = _decode(options.continue_token)
        revision, after = token.rv, (token.ns, token.name)
    else:
        revision, after = _revision(store, options), None
    if revision == store.revision:
        found = matching(bucket, info, options.namespace, options.selector)
    else:
        found = list(_as_of(bucket, info, options, revision, store.revision))
    if after is not None:
        found = [record for record in found if record.key > after]
    return _cut(found, revision, options)


def _cut(found: list[Record], revision: int, options: ListOptions) -> Page:
    if not options.limit or len(found) <= options.limit:
        return Page(found, revision)
    page = found[: options.limit]
    remaining = len(found) - len(page) if options.selector.everything else None
    return Page(page, revision, _encode(revision, page[-1].key), remaining)


def _check(options: ListOptions) -> None:
    if options.continue_token and options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    if not options.match:
        return
    if options.match not in ("Exact", "NotOlderThan"):
        text = f'Unsupported value: "{options.match}": supported values: "Exact", "NotOlderThan"'
        raise _refused("FieldValueNotSupported", text)
    if options.continue_token:
        raise _refused("FieldValueForbidden", "Forbidden: it is forbidden when continue is provided")
    if not options.resource_version:
        raise _refused("FieldValueForbidden", "Forbidden: it is forbidden unless resourceVersion is provided")
    if options.match == "Exact" and parse_revision(options.resource_version) == 0:
        raise _refused("FieldValueForbidden", 'Forbidden: "Exact" is forbidden for resourceVersion "0"')


def _refused(reason: str, text: str) -> ApiError:
    return invalid_kind("ListOptions", "meta.k8s.io", "", [Cause("resourceVersionMatch", reason, text)])


def _revision(store: Store, options: ListOptions) -> int:
    asked = parse_revision(options.resource_version)
    if asked > store.revision:
        raise version_too_large(asked, store.revision)
    # Before limits had a match rule, a limit with a revision meant exactly that revision.
    exact = options.match == "Exact" or (not options.match and options.limit > 0 and asked > 0)
    return asked if exact else store.revision


def _as_of(
    bucket: Bucket, info: TypeInfo, options: ListOptions, revision: int, store_revision: int
) -> Iterator[Record]:
    if not bucket.compacted <= revision <= store_revision:
        raise expired(f"The resourceVersion {revision} for the provided list is too old.")
    records = bucket.as_of(revision)
    for key in sorted(records):
        if not options.namespace or key[0] == options.namespace:
            record = through(records[key], info)
            if options.selector(record.obj):
                yield record


def _encode(revision: int, key: Key) -> str:
    raw = msgspec.json.encode(_Token(revision, *key))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise bad_request("continue key is not valid") from error
