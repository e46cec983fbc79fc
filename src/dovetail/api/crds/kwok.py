"""KWOKNodeClass as admitted: karpenter.kwok.sh/v1alpha1."""

from __future__ import annotations

from dovetail.api.crds import patterns
from dovetail.api.crds.definition import Definition, Field, constrained, mounted
from dovetail.api.crds.parts import CONDITION, PLAIN_CONDITIONS
from dovetail.api.nodeclass import KWOKNodeClass

# Nothing reconciles this class, so it is born ready.
_BORN_READY = {
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2024-01-01T01:01:01Z",
        }
    ]
}

FIELDS: dict[str, Field] = {
    "spec": constrained("How simulated nodes are made."),
    "spec.nodeRegistrationDelay": constrained(
        "How long a simulated node takes to appear.", pattern=patterns.DURATION
    ),
    "status": constrained("Whether the class can be used.", default=_BORN_READY),
    "status.conditions": PLAIN_CONDITIONS,
    **mounted("status.conditions[]", CONDITION),
}

KWOKNODECLASS = Definition(
    KWOKNodeClass, "How simulated nodes are made.", FIELDS, short_names=("kwoknc", "kwokncs")
)
