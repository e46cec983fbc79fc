"""The simulated AWS beside an embedded cluster: machines that join it, and an endpoint for whoever looks."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dovetail.errors import Misconfigured
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.instances import ENDS, STARTS
from dovetail.sim.aws.joining import BOOTS, Joining
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["BOOTS", "CLUSTER", "Beside", "beside", "default_pool", "write_env"]

CLUSTER, REGION = "dovetail", "us-west-2"
HEADER = "# Written by dovetail up; source it in a shell."
POOLS, CLASSES = "nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"
DISCOVERED = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
CLASS = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": f"KarpenterNodeRole-{CLUSTER}",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": DISCOVERED,
        "securityGroupSelectorTerms": DISCOVERED,
    },
}
REQUIREMENTS = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
]


@dataclass(slots=True)
class Beside:
    """The cloud of an embedded cluster. Without boto3 there is no endpoint, and `url` is empty."""

    aws: SimulatedAws
    joining: Joining
    url: str = ""

    def environment(self, kubeconfig: Path) -> dict[str, str]:
        """What a shell needs to see the cluster and its cloud; the keys open nothing but this simulation."""
        return {
            "KUBECONFIG": str(kubeconfig.absolute()),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": f"AKIA{self.aws.account}0000",
            "AWS_SECRET_ACCESS_KEY": "simulated",
            "CLUSTER_NAME": CLUSTER,
            "INTERRUPTION_QUEUE": CLUSTER,
        }


@asynccontextmanager
async def beside(
    world: World, endpoint: str, seed: int, *, boots: tuple[float, float] = BOOTS, served: bool = True
) -> AsyncIterator[Beside]:
    """A cloud with this cluster in it, and the machines of the nodes the cluster was kept with."""
    aws = SimulatedAws(world.clock, seed, REGION, cluster=CLUSTER)
    aws.eks.clusters[CLUSTER].endpoint = endpoint
    aws.interruption_queue(CLUSTER)
    # Ids that were given before a restart must not be given again.
    aws.ground.rng.seed(f"{seed} from {world.server.store.revision}")
    # A machine that joins in no time must run before that, and who is in a hurry is so to the end.
    aws.instances.starts = (min(STARTS[0], boots[0] / 4), min(STARTS[1], boots[0] / 2))
    aws.instances.ends = (min(ENDS[0], boots[0] / 2), min(ENDS[1], boots[0]))
    joining = Joining(aws, world, CLUSTER, boots=boots)
    joining.adopt()
    if not served or find_spec("botocore") is None:
        yield Beside(aws, joining)
        return
    from dovetail.sim.aws.serve import served as listening

    async with listening(aws) as server:
        yield Beside(aws, joining, server.url)


def default_pool(world: World, **pool: Any) -> None:
    """A node class and a pool to begin with, unless there are some."""
    spec = {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": REQUIREMENTS,
            }
        },
        **pool,
    }
    made = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": spec,
    }
    if world.api.list(POOLS) or world.api.list(CLASSES):
        return
    for resource, each in ((CLASSES, CLASS), (POOLS, made)):
        try:
            world.api.create(resource, each)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise


def write_env(path: Path, values: dict[str, str]) -> None:
    """Lines for a shell to source, readable by their owner only. A file that is not ours stays."""
    if not values["AWS_ENDPOINT_URL"]:
        raise Misconfigured(
            "serving the simulated AWS needs boto3; run `pip install dovetail[aws]`, or leave out --env"
        )
    lines = [HEADER, *(f"export {key}={shlex.quote(value)}" for key, value in values.items())]
    try:
        if (
            path.exists()
            and path.stat().st_size
            and not path.read_text("utf-8", "replace").startswith(HEADER)
        ):
            raise Misconfigured(f"writing {path}: it holds something else; choose another --env")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        raise Misconfigured(f"writing {path}: {error.strerror}; choose another --env") from error
