"""Node classes in an embedded API server, looked after by the AWS provider over a simulated AWS.

async with ClassScene().still() as scene:      nothing moves: a test calls controllers pass by pass
    scene.apply(node_class())
    await scene.resolve()
    assert scene.says("Ready") == ("True", "Ready")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any, Self

from dovetail.api import codec, conditions
from dovetail.api.crds import build_manifests
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.app.controller import Dovetail
from dovetail.controllers.base import Controller, Result
from dovetail.errors import DovetailError
from dovetail.providers.aws.provider import AwsProvider
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.aws import CLUSTER, simulated

__all__ = [
    "CLAIMS",
    "CLASSES",
    "DISCOVERED",
    "NODES",
    "POOLS",
    "ROLE",
    "ClassScene",
    "claim_of",
    "node_class",
    "pool_of",
]

Json = dict[str, Any]
CLASSES, CLAIMS = "ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh"
POOLS, NODES = "nodepools.karpenter.sh", "nodes"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
ROLE = f"KarpenterNodeRole-{CLUSTER}"
DISCOVERED = {"karpenter.sh/discovery": CLUSTER}
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
MOMENT = 0.001


def node_class(name: str = "default", **spec: Any) -> Json:
    """A class as a person writes it; a field that is None is left out."""
    wanted: Json = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": DISCOVERED}],
        "securityGroupSelectorTerms": [{"tags": DISCOVERED}],
        "role": ROLE,
        **spec,
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def claim_of(name: str = "claim", class_name: str = "default", **metadata: Any) -> Json:
    """A claim somebody made from a class."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"nodeClassRef": {**REFERENCE, "name": class_name}, "requirements": []},
    }


def pool_of(name: str = "default", requirements: Sequence[Json] = (), class_name: str = "default") -> Json:
    """A pool that uses a class."""
    template = {"nodeClassRef": {**REFERENCE, "name": class_name}, "requirements": list(requirements)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}},
    }


class ClassScene:
    """One world, one AWS, and the Dovetail of the moment: `restart` brings another."""

    def __init__(
        self,
        *flags: str,
        seed: int = 0,
        open_kubelet: bool = False,
        unchecked: bool = False,
        cluster: str = CLUSTER,
    ) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, seed)
        self.api = self.world.server.build_local_client("someone")
        for each in build_manifests("aws"):
            opened = _opened(each) if open_kubelet else each
            self.api.create(CRDS, _unchecked(opened) if unchecked else opened)
        self.aws = simulated(self.clock, seed, cluster=cluster)
        basic = (f"--cluster-name={cluster}", "--eks-control-plane=true")
        self.settings = read_settings((*basic, *flags), {}, provider="aws")
        self._lives = 0
        self.dovetail = self._made()

    def _made(self) -> Dovetail:
        self._lives += 1
        return Dovetail(
            self.settings,
            LocalTransport(self.world.server),
            clock=self.clock,
            chance=Random(self._lives),
            provider="aws",
            make=lambda given: AwsProvider(given, self.aws),
        )

    @property
    def provider(self) -> AwsProvider:
        made = self.dovetail.provider
        assert isinstance(made, AwsProvider)
        return made

    @asynccontextmanager
    async def still(self) -> AsyncIterator[Self]:
        """Dovetail listens and does nothing by itself."""
        server = asyncio.create_task(self.world.server.run())
        await self._start(acting=False)
        try:
            yield self
        finally:
            await self.stop()
            server.cancel()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Everyone at work."""
        async with self.world.running():
            await self._start(acting=True)
            try:
                yield self
            finally:
                await self.stop()

    async def _start(self, *, acting: bool) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        run = self.dovetail.run() if acting else self.dovetail.run(never)
        self._running = asyncio.create_task(run)
        await self.heard()

    async def stop(self) -> None:
        self.dovetail.stop()
        await self._running
        await self.dovetail.kube.transport.close()

    async def restart(self) -> None:
        """Another process, which remembers nothing."""
        await self.stop()
        self.dovetail = self._made()
        await self._start(acting=False)

    async def heard(self) -> None:
        """Let the watches deliver."""
        await self.clock.sleep(MOMENT)

    async def pass_(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    # One pass

    def controller(self, name: str) -> Controller:
        return next(each for each in self.dovetail.controllers if each.name == name)

    async def look(self, name: str, key: str = "") -> Result:
        """One pass of one controller, on what has been heard by now."""
        await self.heard()
        try:
            return await self.controller(name).reconcile(key)
        finally:
            await self.heard()

    async def resolve(self, name: str = "default") -> Result:
        """One pass over a class."""
        return await self.look("nodeclass", name)

    async def failing(self, name: str = "default") -> DovetailError:
        """One pass over a class, which fails."""
        try:
            result = await self.resolve(name)
        except DovetailError as error:
            return error
        raise AssertionError(f"the pass went well: {result}")

    # What is there

    def apply(self, document: Json) -> Json:
        resource = {"EC2NodeClass": CLASSES, "NodeClaim": CLAIMS, "NodePool": POOLS, "Node": NODES}
        return self.api.create(resource[document["kind"]], document)

    def change(self, name: str = "default", **spec: Any) -> Json:
        """Change a class as people do; None takes a field away."""
        return self.api.patch(CLASSES, name, {"spec": spec})

    def annotate(self, name: str = "default", **marks: str) -> Json:
        return self.api.patch(CLASSES, name, {"metadata": {"annotations": marks}})

    def now(self, name: str = "default") -> EC2NodeClass:
        return codec.decode(EC2NodeClass, json.dumps(self.api.get(CLASSES, name)).encode())

    def claim_now(self, name: str = "claim") -> NodeClaim:
        return codec.convert(NodeClaim, self.api.get(CLAIMS, name))

    def has(self, resource: str, name: str) -> bool:
        try:
            self.api.get(resource, name)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def says(self, kind: str = "Ready", name: str = "default") -> tuple[str, str]:
        """A condition's status and reason."""
        found = conditions.find_condition(self.now(name), kind)
        return (found.status, found.reason) if found is not None else ("", "")

    def why(self, kind: str, name: str = "default") -> str:
        """A condition's message."""
        found = conditions.find_condition(self.now(name), kind)
        return found.message if found is not None else ""

    def events(self, reason: str) -> list[Json]:
        return [each for each in self.api.list("events") if each.get("reason") == reason]

    def asked(self, operation: str, since: int = 0) -> list[Mapping[str, Any]]:
        """The parameters of every request for an operation since a number of requests."""
        return [call.parameters for call in list(self.aws.calls)[since:] if call.operation == operation]


def _opened(crd: Json) -> Json:
    """The definition as Karpenter's next line has it: kubelet settings are anything at admission."""
    if not crd["metadata"]["name"].startswith("ec2nodeclasses"):
        return crd
    changed = deepcopy(crd)
    for version in changed["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["kubelet"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return changed


def _unchecked(document: Any) -> Any:
    """A definition somebody else installed, without rules."""
    if isinstance(document, list):
        return [_unchecked(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {key: _unchecked(each) for key, each in document.items() if key != "x-kubernetes-validations"}
