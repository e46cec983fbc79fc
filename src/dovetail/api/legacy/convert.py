"""The conversion as a whole: sort the input, convert each object, then join pools to classes.

Objects come out where they went in. Two passes are needed because a NodePool cannot name its class
before every user of that class is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy import beta, provisioner
from dovetail.api.legacy.classes import LegacyNodeClass, LegacyNodeClasses
from dovetail.api.legacy.names import (
    ALPHA,
    ALPHA_AWS,
    AWS_GROUP,
    BETA,
    BETA_AWS,
    V1,
    V1_AWS,
    build_metadata,
    read_object_name,
)
from dovetail.api.legacy.nodetemplate import build_node_class, convert_provider, convert_template
from dovetail.api.legacy.notes import Note, NoteSeverity, Scribe
from dovetail.api.legacy.options import ConvertOptions, apply_global_settings, is_global_settings
from dovetail.api.legacy.shared_parts import convert_kubelet
from dovetail.api.legacy.workloads import rewrite_workload
from dovetail.api.manifests import Document
from dovetail.api.validation import admit_object

_NO_CLASS = "is not converted, because the node class it uses cannot be"
_BRIDGE = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The v1 manifests, and every step on the way that lost or guessed something."""

    manifests: tuple[dict[str, Any], ...]
    notes: tuple[Note, ...]

    @property
    def complete(self) -> bool:
        """True when nothing was left for a person to supply."""
        return all(note.severity is not NoteSeverity.ERROR for note in self.notes)


@dataclass(slots=True)
class _Output:
    """What one document became, with the remarks that belong above it."""

    scribe: Scribe
    values: list[dict[str, Any]] = field(default_factory=list)
    classes: list[LegacyNodeClass] = field(default_factory=list)  # finished after all users are known


@dataclass(slots=True)
class _User:
    """A converted pool or claim that still needs its class."""

    output: _Output
    value: dict[str, Any]
    body: dict[str, Any]  # the part of the value that holds nodeClassRef
    path: str  # of its kubelet block in the old object
    kubelet: dict[str, Any]
    found: LegacyNodeClass | None = None
    ref: dict[str, str] = field(default_factory=dict)


def convert_documents(documents: Sequence[Document], options: ConvertOptions | None = None) -> Conversion:
    """Every old manifest as v1; v1 and unrelated manifests as they are."""
    work = _Work(options or ConvertOptions())
    for document in documents:
        if is_global_settings(document):
            work.read_settings(document)
    for document in documents:
        work.reserve_names(document)
    for document in documents:
        work.take_class(document)
    for document in documents:
        work.take_document(document)
    return work.finish_conversion()


class _Work:
    """One conversion under way."""

    def __init__(self, options: ConvertOptions) -> None:
        self.options = options
        self.classes = LegacyNodeClasses()
        self.pools: set[str] = set()  # names of pools that are NodePools already
        self.templates: dict[str, list[LegacyNodeClass]] = {}
        self.node_classes: dict[str, list[LegacyNodeClass]] = {}
        self.expiry: dict[str, str] = {}  # of converted beta pools, for their claims
        self.taken: dict[int, _Output] = {}  # class and settings documents, by identity
        self.outputs: list[_Output] = []
        self.users: list[_User] = []
        self.seen: set[tuple[str, str, str]] = set()  # version, kind and name of what was converted
        self.named: dict[tuple[str, str], str] = {}  # the class made for an old object

    def read_settings(self, document: Document) -> None:
        output = _Output(Scribe(document))
        self.options = apply_global_settings(self.options, output.scribe)
        self.taken[id(document)] = output

    def reserve_names(self, document: Document) -> None:
        """Names that stand already; what is converted from alpha gives way to them."""
        if document.kind == "EC2NodeClass" and document.api_version in (V1_AWS, BETA_AWS):
            self.classes.taken.add(document.name)
        elif document.kind == "NodePool" and document.api_version in (V1, BETA):
            self.pools.add(document.name)

    def take_class(self, document: Document) -> None:
        match document.api_version, document.kind:
            case (str(version), "EC2NodeClass") if version == V1_AWS:
                found = self._remember_class(
                    document, LegacyNodeClass(document.value, Scribe(document), fixed=True)
                )
                self.node_classes.setdefault(document.name, []).append(found)
            case (str(version), "EC2NodeClass") if version == BETA_AWS:
                found = self._remember_class(document, self._convert_beta_class(document))
                self.node_classes.setdefault(document.name, []).append(found)
            case (str(version), "AWSNodeTemplate") if version == ALPHA_AWS:
                found = self._remember_class(document, self._convert_template(document))
                self.templates.setdefault(document.name, []).append(found)

    def take_document(self, document: Document) -> None:
        """Convert one document and remember where it stood."""
        if id(document) in self.taken:
            self.outputs.append(self.taken[id(document)])
            return
        output = _Output(Scribe(document))
        self.outputs.append(output)
        group, _, version = document.api_version.partition("/")
        match group, version, document.kind:
            case "karpenter.sh", "v1alpha5", "Provisioner":
                self._convert_provisioner(output)
            case "karpenter.sh", "v1beta1", "NodePool":
                self._convert_beta_pool(output)
            case "karpenter.sh", "v1beta1", "NodeClaim":
                self._convert_beta_claim(output)
            case "karpenter.sh", _, "Machine":
                message = (
                    "is never converted: the controller made it for a node, and that node is replaced instead"
                )
                output.scribe.warn("", message)
            case "karpenter.sh", _, "Provisioner":
                output.scribe.refuse(
                    "apiVersion", f"{document.api_version} is too old to convert; bring it to {ALPHA}"
                )
            case _:
                self._pass_through(output)

    def finish_conversion(self) -> Conversion:
        for user in self.users:
            if user.found is not None:
                self._join_class(user, user.found)
        found = {id(one): self._list_admissible(one) for output in self.outputs for one in output.classes}
        for user in self.users:
            self._follow_class(user, found)
        manifests: list[dict[str, Any]] = []
        notes: list[Note] = []
        for output in self.outputs:
            _add_output(output.scribe, output.values, manifests, notes)
            for one in output.classes:
                _add_output(one.scribe, found[id(one)], manifests, notes)
        return Conversion(tuple(manifests), tuple(notes))

    def _list_admissible(self, found: LegacyNodeClass) -> list[dict[str, Any]]:
        """What the class became, as far as v1 takes it; what was v1 before is not ours to judge."""
        return [
            value
            for value in self.classes.list_objects(found)
            if (found.fixed and value is found.value) or _is_admitted(found.scribe, value)
        ]

    def _follow_class(self, user: _User, found: dict[int, list[dict[str, Any]]]) -> None:
        """A pool goes where its class goes."""
        writer = user.output.scribe
        if not _is_admitted(writer, user.value):
            user.output.values.remove(user.value)
        elif user.found is not None:
            name = user.body["nodeClassRef"]["name"]
            if name not in [value["metadata"]["name"] for value in found[id(user.found)]]:
                writer.error("", _NO_CLASS)
                user.output.values.remove(user.value)

    def _remember_class(self, document: Document, found: LegacyNodeClass) -> LegacyNodeClass:
        self.taken[id(document)] = _Output(Scribe(document), classes=[found])
        return found

    def _convert_template(self, document: Document) -> LegacyNodeClass:
        writer = Scribe(document)
        name = self._find_name(writer)
        spec = convert_template(writer.for_part("spec"), self.options)
        value = None
        if not writer.refused:
            unique = self._class_name(writer, name)
            value = build_node_class(unique, build_metadata(writer, unique), spec)
        return LegacyNodeClass(value, writer, unlimited_pods=not self.options.eni_limited_pod_density)

    def _convert_beta_class(self, document: Document) -> LegacyNodeClass:
        writer = Scribe(document)
        name = self._find_name(writer)
        spec, marks = beta.convert_class_spec(writer.for_part("spec"), self.options)
        head = build_metadata(writer, name, marks)
        value = None if writer.refused else build_node_class(name, head, spec)
        return LegacyNodeClass(value, writer, unlimited_pods=not self.options.eni_limited_pod_density)

    def _find_name(self, writer: Scribe) -> str:
        """The object's name. It may come twice, as from two folders for two clusters: each is converted."""
        name = read_object_name(writer)
        key = (writer.document.api_version, writer.document.kind, name)
        if name and key in self.seen:
            message = f"{name} is given more than once; in one cluster the last one applied counts"
            writer.warn("metadata.name", message)
        self.seen.add(key)
        return name

    def _class_name(self, writer: Scribe, name: str) -> str:
        key = (writer.document.kind, name)
        if key in self.named:
            return self.named[key]  # the same object once more
        self.named[key] = unique = self.classes.reserve_name(name)
        if unique != name:
            writer.warn("metadata.name", f"an EC2NodeClass {name} exists already; this one becomes {unique}")
        return unique

    def _convert_provisioner(self, output: _Output) -> None:
        writer = output.scribe
        name = self._find_name(writer)
        spec = writer.read_mapping(writer.document.value.get("spec"), "spec")
        unique = name
        if name in self.pools:
            unique = f"{name}-provisioner"
            writer.warn("metadata.name", f"a NodePool {name} exists already; this one becomes {unique}")
        value = provisioner.convert_node_pool(writer, unique, self.options)
        block = convert_kubelet(writer, spec.get("kubeletConfiguration"), "spec.kubeletConfiguration")
        user = _User(output, value, value["spec"]["template"]["spec"], "spec.kubeletConfiguration", block)
        if spec.get("provider") is not None and spec.get("providerRef") is not None:
            writer.refuse("spec.provider", "excludes providerRef, and both are given; remove one")
        elif spec.get("provider") is not None:
            user.found = self._convert_inline_class(output, name)
        else:
            self._follow_provider_ref(user, spec.get("providerRef"))
        self._settle_user(user)

    def _convert_inline_class(self, output: _Output, name: str) -> LegacyNodeClass:
        """The class that a provider block inside a Provisioner becomes."""
        outer = output.scribe
        writer = Scribe(outer.document, "spec.provider", outer.name)
        spec = convert_provider(writer, outer.document.value["spec"]["provider"], self.options)
        value = None
        if not (writer.refused or outer.refused):
            value = build_node_class(self._class_name(outer, name), {}, spec)
        found = LegacyNodeClass(value, writer, unlimited_pods=not self.options.eni_limited_pod_density)
        output.classes.append(found)
        return found

    def _follow_provider_ref(self, user: _User, given: Any) -> None:
        """Follow providerRef to a template of the input, or trust that its class will exist."""
        writer = user.output.scribe
        name = writer.read_text(
            writer.read_mapping(given, "spec.providerRef").get("name"), "spec.providerRef.name"
        )
        if not name:
            writer.refuse(
                "spec", "has neither provider nor providerRef, so its nodes are not described; add one"
            )
            return
        user.ref = {"group": AWS_GROUP, "kind": "EC2NodeClass", "name": name}
        user.found = _find_nearest(self.templates, name, writer.document)
        if user.found is None:
            writer.warn("spec.providerRef", f"AWSNodeTemplate {name} is not in the input; convert it too")

    def _convert_beta_pool(self, output: _Output) -> None:
        writer = output.scribe
        name = self._find_name(writer)
        value = beta.convert_node_pool(writer, name)
        body = value["spec"]["template"]["spec"]
        self.expiry[name] = body["expireAfter"]
        self._beta_user(output, value, body, "spec.template.spec.kubelet")

    def _convert_beta_claim(self, output: _Output) -> None:
        writer = output.scribe
        head = writer.read_mapping(writer.document.value.get("metadata"), "metadata")
        given = head.get("labels")
        pool = given.get(labels.NODEPOOL) if isinstance(given, dict) else None
        value = beta.convert_node_claim(writer, self._find_name(writer), self.expiry.get(str(pool)))
        self._beta_user(output, value, value["spec"], "spec.kubelet")

    def _beta_user(self, output: _Output, value: dict[str, Any], body: dict[str, Any], path: str) -> None:
        given: Any = output.scribe.document.value
        for step in path.split("."):
            given = given.get(step) if isinstance(given, dict) else None
        block = convert_kubelet(output.scribe, given, path)
        user = _User(output, value, body, path, block, ref=body["nodeClassRef"])
        if (user.ref["group"], user.ref["kind"]) == (AWS_GROUP, "EC2NodeClass"):
            user.found = _find_nearest(self.node_classes, user.ref["name"], output.scribe.document)
            if user.found is None and user.ref["name"]:
                message = f"EC2NodeClass {user.ref['name']} is not in the input; see that it is v1 too"
                output.scribe.info("", message)
        self._settle_user(user)

    def _settle_user(self, user: _User) -> None:
        """Put the object on its way, unless it or its class has no counterpart."""
        writer = user.output.scribe
        if user.found is not None and user.found.value is None and not writer.refused:
            writer.refuse("", _NO_CLASS)
        if writer.refused:
            for found in user.output.classes:
                found.value = None
            return
        user.body["nodeClassRef"] = user.ref
        user.output.values.append(user.value)
        self.users.append(user)
        if user.found is None and user.kubelet:
            message = (
                "belongs to the node class in v1, and that is not in the input, so it is lost; add the class"
            )
            writer.error(user.path, message)

    def _join_class(self, user: _User, found: LegacyNodeClass) -> None:
        name = self.classes.name_variant(found, user.kubelet, user.value["metadata"]["name"])
        user.body["nodeClassRef"] = {"group": AWS_GROUP, "kind": "EC2NodeClass", "name": name}

    def _pass_through(self, output: _Output) -> None:
        document = output.scribe.document
        if document.api_version == V1:
            self._note_bridge(output.scribe)
            self._hold_name(document)
        if self.options.rewrite_workloads:
            output.values.append(rewrite_workload(output.scribe))
        else:
            output.values.append(document.value)

    def _note_bridge(self, writer: Scribe) -> None:
        head = writer.document.value.get("metadata")
        marks = head.get("annotations") if isinstance(head, dict) else None
        if isinstance(marks, dict) and _BRIDGE in marks:
            message = "holds kubelet settings that 1.1 and later do not read; move them to the EC2NodeClass"
            writer.warn(f"metadata.annotations[{_BRIDGE}]", message)

    def _hold_name(self, document: Document) -> None:
        """A v1 NodePool cannot be pointed elsewhere: the class it names keeps that name, as it is."""
        given: Any = document.value
        for step in ("spec", "template", "spec", "nodeClassRef", "name"):
            given = given.get(step) if isinstance(given, dict) else None
        for known in (self.node_classes, self.templates):
            found = _find_nearest(known, given, document) if isinstance(given, str) else None
            if found is not None and found.value is not None:
                self.classes.name_variant(found, {}, "")
                return


def _find_nearest(
    known: dict[str, list[LegacyNodeClass]], name: str, document: Document
) -> LegacyNodeClass | None:
    """The class of that name in the same file, or else in the input at all."""
    found = known.get(name, [])
    beside = [one for one in found if one.scribe.document.source == document.source]
    candidates = beside or found
    return candidates[-1] if candidates else None


def _add_output(
    writer: Scribe, values: list[dict[str, Any]], manifests: list[dict[str, Any]], notes: list[Note]
) -> None:
    target = len(manifests) if values else None
    manifests.extend(values)
    notes.extend(replace(note, target=target) for note in writer.notes)


def _is_admitted(writer: Scribe, value: dict[str, Any]) -> bool:
    """True when v1 takes the object; flaws that were in the old one all along come to light here."""
    wrong = admit_object(value["kind"], value)
    for complaint in wrong:
        message = f"is not converted, because v1 refuses its {complaint.path}: {complaint.message}"
        writer.error("", message)
    return not wrong
