"""What every namespace has from the start: a service account, and the certificate its pods trust.

A controller manager would see to it; here it is there before the write that made the namespace returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.options import WriteOptions

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.handler import Handler
    from dovetail.sim.kube.store import Event

ACCOUNT, CERTIFICATE = "default", "kube-root-ca.crt"
_KEPT = {("serviceaccounts", ACCOUNT), ("configmaps", CERTIFICATE)}
_DESCRIPTION = "The certificate that says who the API server is, for pods to verify it with."
_MANAGED = WriteOptions(manager="kube-controller-manager")


class Furnisher:
    """Sees that they are there, are what they should be, and come back when they are taken away."""

    def __init__(self, core: Core, handler: Handler, authority: str) -> None:
        self.core = core
        self.handler = handler
        self.authority = authority
        core.store.on_commit(self.heard, "namespaces", *(resource for resource, _ in _KEPT))

    def heard(self, event: Event) -> None:
        """Notice new namespaces, and changes to what was put in them."""
        namespace, name = event.new.key
        resource = event.new.info.resource
        if resource == "namespaces" and event.type == "ADDED":
            self.core.afterwards(lambda: self.furnish(name))
        elif event.type != "ADDED" and (resource, name) in _KEPT:
            self.core.afterwards(lambda: self.furnish(namespace))

    def everywhere(self) -> None:
        """Furnish what was there before."""
        for _, name in list(self.core.store.bucket("namespaces").records):
            self.furnish(name)

    def furnish(self, namespace: str) -> None:
        """Make good what is missing or wrong, unless the namespace is on its way out."""
        home = self.core.find("namespaces", "", namespace)
        if home is None or home["metadata"].get("deletionTimestamp"):
            return
        if self.core.find("serviceaccounts", namespace, ACCOUNT) is None:
            self._create("serviceaccounts", namespace, {"metadata": {"name": ACCOUNT}})
        self._certificate(namespace)

    def _certificate(self, namespace: str) -> None:
        data = {"ca.crt": self.authority}
        found = self.core.find("configmaps", namespace, CERTIFICATE)
        if found is None:
            meta = {"name": CERTIFICATE, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
            self._create("configmaps", namespace, {"metadata": meta, "data": data})
        elif found.get("data") != data and not found["metadata"].get("deletionTimestamp"):
            info = self.core.type_of("configmaps")
            self.handler.update(info, (namespace, CERTIFICATE), {**found, "data": data}, _MANAGED)

    def _create(self, resource: str, namespace: str, body: dict[str, Any]) -> None:
        self.handler.create(self.core.type_of(resource), namespace, body, _MANAGED)
