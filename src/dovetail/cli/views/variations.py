"""What `dovetail replay` is to try, as people write it: settings, manifests, groups of them, and sweeps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dovetail.api.manifests.typed_fields import suggest_name
from dovetail.cli.views.files import read_manifests
from dovetail.errors import BadInput, DovetailError, Misconfigured
from dovetail.play.recorded_objects import build_nodepool
from dovetail.play.replay_sections import RecordingSurvey
from dovetail.play.replaying import Variation
from dovetail.settings import SETTINGS, read_settings

__all__ = ["VariationParser"]

Json = dict[str, Any]
Choices = Literal["dovetail", "karpenter"]
SETTING_NAMES = frozenset(setting.variable for setting in SETTINGS)
KINDS = (
    "NodePool",
    "EC2NodeClass",
    "KWOKNodeClass",
    "CapacityBuffer",
    "PodDisruptionBudget",
    "Deployment",
    "Commitment",
    "SpendLimit",
)
_GROUP = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True, slots=True)
class VariationParser:
    """Reads variations for one recording: what is not said is as it was recorded."""

    survey: RecordingSurvey
    choices: Choices

    def build_plain(self, name: str, choices: Choices) -> Variation:
        """The rules of the recording, with these choices."""
        recorded = dict(self.survey.settings)
        provider = recorded.pop("PROVIDER", "kwok")
        return Variation(name, choices, provider, recorded, recorded)

    def parse_with(self, text: str) -> Variation:
        """The variation of one `--with`: KEY=VALUE, FILE, or NAME=… of several of them, with commas."""
        asked = f"--with {text}"
        left, equals, right = text.partition("=")
        grouped = equals and left not in SETTING_NAMES and _GROUP.fullmatch(left) and not Path(text).exists()
        if grouped and not _names_file(right) and "=" not in right:
            raise BadInput(f"{asked}: there is no setting {left}{suggest_name(left, SETTING_NAMES)}")
        parts = right.split(",") if grouped else [text]
        made = self.build_plain(left if grouped else Path(text).stem if not equals else text, self.choices)
        for part in parts:
            made = self._add_part(made, part, asked)
        self._check_settings(made, asked)
        return made

    def parse_vary(self, text: str) -> list[Variation]:
        """One variation for each value: of a setting, or of a field such as pools.NAME.spec.weight."""
        asked = f"--vary {text}"
        path, _, values = text.partition("=")
        if not path or not values:
            raise BadInput(f"{asked}: say it as path=value,value,…")
        found = []
        for value in values.split(","):
            plain = self.build_plain(f"{path.rpartition('.')[2]}={value}", self.choices)
            if path in SETTING_NAMES:
                made = replace(plain, settings={**plain.settings, path: value})
            else:
                made = replace(plain, manifests=(self._vary_pool(path, value, asked),))
            self._check_settings(made, asked)
            found.append(made)
        return found

    def _add_part(self, made: Variation, part: str, asked: str) -> Variation:
        key, equals, value = part.partition("=")
        if equals and key in SETTING_NAMES:
            return replace(made, settings={**made.settings, key: value})
        if equals and not Path(part).exists():
            raise BadInput(f"{asked}: there is no setting {key}{suggest_name(key, SETTING_NAMES)}")
        read = read_manifests([part])
        if read.complaints:
            raise BadInput(f"{asked}: {read.complaints[0]}")
        documents = tuple(document.value for document in read.documents)
        for document in documents:
            self._check_manifest(document, asked)
        return replace(made, manifests=(*made.manifests, *documents))

    def _check_manifest(self, document: Mapping[str, Any], asked: str) -> None:
        kind, name = str(document.get("kind")), str((document.get("metadata") or {}).get("name", ""))
        if kind not in KINDS:
            raise BadInput(f"{asked}: a {kind} cannot be tried; {_list_names(KINDS)} can")
        pools = self.survey.pools
        if kind == "NodePool" and name not in pools:
            raise BadInput(
                f'{asked}: NodePool "{name}" is not on the recording; the pools are {_list_names(pools)}'
            )
        if kind == "Deployment":
            namespace = str((document.get("metadata") or {}).get("namespace", "default"))
            if not any(of == namespace and rs.rpartition("-")[0] == name for of, rs in self.survey.workloads):
                raise BadInput(f'{asked}: Deployment "{namespace}/{name}" is not on the recording')

    def _check_settings(self, made: Variation, asked: str) -> None:
        try:
            read_settings((), {"CLUSTER_NAME": "replay", **made.settings}, provider=made.provider)
        except DovetailError as error:
            raise Misconfigured(f"{asked}: {error}") from error

    def _vary_pool(self, path: str, value: str, asked: str) -> Json:
        """The recorded NodePool with one field changed."""
        steps = path.split(".")
        if len(steps) < 3 or steps[0] != "pools" or steps[1] not in self.survey.pools:
            raise BadInput(
                f"{asked}: name a setting, or a field as pools.NAME.spec.disruption.consolidateAfter; "
                f"the pools are {_list_names(self.survey.pools)}"
            )
        document = build_nodepool(self.survey.pools[steps[1]], {}, knobs=True)
        place: Any = document
        try:
            for step in steps[2:-1]:
                place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
            place[int(steps[-1]) if isinstance(place, list) else steps[-1]] = _read_value(value)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{asked}: the NodePool has no such field") from error
        return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **document}


def _names_file(text: str) -> bool:
    return any(Path(part).exists() for part in text.split(","))


def _read_value(text: str) -> object:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _list_names(names: Sequence[str] | Mapping[str, object]) -> str:
    listed = list(names)
    return " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1]))) if listed else "none"
