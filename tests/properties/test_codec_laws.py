"""What is read can be written, what changes is all that changes, and nulls mean nothing."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dovetail.api import core
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.codec import (
    Interner,
    convert,
    decode,
    decode_list,
    encode,
    merge_patch,
    overlay_document,
    to_dict,
)
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from support.records import records

OURS: list[type[Object]] = [NodePool, NodeClaim, NodeOverlay, EC2NodeClass, KWOKNodeClass, CapacityBuffer]
KINDS: list[type[Object]] = OURS + [
    kind
    for name in core.__all__
    if isinstance(kind := getattr(core, name), type) and issubclass(kind, Object)
]
UNKNOWN = {"fromTheFuture": {"nested": [1, {"deep": True}]}}


def objects(kind: type[Object]) -> st.SearchStrategy[Any]:
    return records(kind)


def pods() -> st.SearchStrategy[Pod]:
    """Pods as they are held: what the codec drops is dropped."""
    return records(Pod).map(lambda pod: decode(Pod, encode(pod)))


def with_unknown_fields(document: Any) -> Any:
    """The document, with fields of a later version in every object that is not a plain mapping of texts."""
    if isinstance(document, list):
        return [with_unknown_fields(item) for item in document]
    if not isinstance(document, dict):
        return document
    inner = {key: with_unknown_fields(value) for key, value in document.items()}
    texts = document and all(isinstance(value, str) for value in document.values())
    return inner if texts or not document else inner | copy.deepcopy(UNKNOWN)


def patched(document: Any, patch: Any) -> Any:
    """RFC 7386, straight from its pseudo-code."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_kind_survives_being_written_and_read(kind: type[Object], data: st.DataObject) -> None:
    thing = data.draw(objects(kind))
    assert decode(kind, encode(thing)) == thing
    assert convert(kind, to_dict(thing)) == thing
    assert to_dict(thing)["kind"] == kind.KIND.kind


@settings(max_examples=100, deadline=None)
@given(pods())
def test_a_pod_survives_being_written_and_read(pod: Pod) -> None:
    assert decode(Pod, encode(pod)) == pod
    assert convert(Pod, to_dict(pod)) == pod


@pytest.mark.parametrize("kind", OURS, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.spec("api-10.10")
def test_laying_a_change_over_a_document_gives_the_change_and_keeps_the_rest(
    kind: type[Object], data: st.DataObject
) -> None:
    raw = with_unknown_fields(to_dict(data.draw(objects(kind)))) | UNKNOWN
    kept = copy.deepcopy(raw)
    before = convert(kind, raw)
    after = data.draw(objects(kind))
    assert overlay_document(raw, before, before) == raw
    changed = overlay_document(raw, before, after)
    assert convert(kind, changed) == after
    assert changed["fromTheFuture"] == UNKNOWN["fromTheFuture"]
    assert raw == kept


@pytest.mark.parametrize("kind", OURS, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_merge_patch_leads_from_one_record_to_the_other(kind: type[Object], data: st.DataObject) -> None:
    before, after = data.draw(objects(kind)), data.draw(objects(kind))
    assert merge_patch(before, before) == {}
    assert convert(kind, patched(to_dict(before), merge_patch(before, after))) == after


@pytest.mark.parametrize("kind", OURS, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_merge_patch_is_the_same_whether_or_not_the_records_share_parts(
    kind: type[Object], data: st.DataObject
) -> None:
    before, other = data.draw(objects(kind)), data.draw(objects(kind))
    part = data.draw(st.sampled_from(msgspec.structs.fields(kind))).name
    after = msgspec.structs.replace(before, **{part: getattr(other, part)})
    assert merge_patch(before, after) == merge_patch(copy.deepcopy(before), after)


@settings(max_examples=100, deadline=None)
@given(pods(), pods())
def test_changing_a_pod_keeps_what_pods_drop(before: Pod, after: Pod) -> None:
    # The API gives every volume a name, and names are what a change is matched by.
    assume(all(volume.name for volume in (*before.spec.volumes, *after.spec.volumes)))
    raw = with_unknown_fields(to_dict(before))
    dropped = {"name": "token", "projected": {"sources": []}}
    raw.setdefault("spec", {}).setdefault("volumes", []).append(dropped)
    raw.setdefault("metadata", {}).setdefault("annotations", {})["example.com/note"] = "kept"
    assert decode(Pod, msgspec.json.encode(raw)) == before
    changed = overlay_document(raw, before, after)
    assert decode(Pod, msgspec.json.encode(changed)) == after
    assert dropped in changed["spec"]["volumes"]
    assert changed["metadata"]["annotations"]["example.com/note"] == "kept"


@pytest.mark.parametrize("kind", [*OURS, core.Node, core.Lease], ids=str)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_null_means_the_same_as_nothing(kind: type[Object], data: st.DataObject) -> None:
    thing = data.draw(objects(kind))
    document = to_dict(thing)
    _add_nulls(document, kind, data)
    assert decode(kind, msgspec.json.encode(document)) == thing


def _add_nulls(document: dict[str, Any], kind: Any, data: st.DataObject) -> None:
    for field in msgspec.structs.fields(kind):
        value = document.get(field.encode_name)
        if value is None and data.draw(st.booleans()):
            document[field.encode_name] = None
        elif isinstance(value, dict) and isinstance(field.type, type):
            _add_nulls(value, field.type, data)


@settings(max_examples=50, deadline=None)
@given(st.lists(pods(), max_size=6))
def test_sharing_changes_what_pods_hold_and_never_what_they_say(some: list[Pod]) -> None:
    table = Interner(most_owners=2, most_shapes=1, most_texts=3)
    items = b",".join(encode(pod) for pod in (*some, *some))
    page = b'{"kind":"PodList","metadata":{"continue":"c","resourceVersion":"7"},"items":[' + items + b"]}"
    listing = decode_list(Pod, page, table)
    assert listing.items == [*some, *some]
    assert (listing.meta.continue_token, listing.meta.resource_version) == ("c", "7")
    assert len(table) <= 2
