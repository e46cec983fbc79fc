"""Absurd values in files: a document is planned with or refused, and no command ends in a traceback."""

from __future__ import annotations

import json

import pytest

from dovetail.api.bad_items import reason_of
from dovetail.api.manifests import Document
from dovetail.api.meta import Object
from dovetail.cli.validate import find_unreadable
from dovetail.errors import BadInput
from dovetail.state.offline import KINDS, OfflineCluster
from dovetail.state.unreadable import KINDS_READ
from support.hostile_values import bad_documents
from support.hostile_world import victim_of

NEGATIVE = "; write 0 or more"
READ: list[type[Object]] = list(KINDS_READ.values())


@pytest.mark.parametrize("kind", READ, ids=[kind.KIND.kind for kind in READ])
def test_a_document_is_taken_as_it_is_or_refused_and_validate_says_so_first(kind: type[Object]) -> None:
    named = kind.KIND.api_version, kind.KIND.kind
    for path, _, document in bad_documents(kind, victim_of(kind)):
        world, refused = OfflineCluster(), ""
        try:
            world.add(*named, document)
        except BadInput as error:
            refused = str(error)
        taken = world.list_objects(kind)
        assert not any(map(reason_of, taken)), f"{path}: planned with what would be set aside"
        told = list(find_unreadable(Document("file", 0, *named, document)))
        # An API server lets no negative request in, so that there is nothing to set aside.
        known = told or NEGATIVE in refused or not refused
        assert known, f"{path}: refused, and validate finds nothing: {refused}"
        assert taken or refused or named not in KINDS, f"{path}: neither taken nor refused"
        json.dumps([str(complaint) for complaint in told])
