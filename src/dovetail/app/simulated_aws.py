"""The simulated AWS beside an embedded cluster: machines that join it, and an endpoint for whoever looks."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dovetail.errors import Misconfigured
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.ec2.instances import ENDS, STARTS
from dovetail.sim.aws.ec2.node_join import BOOTS, NodeJoiner
from dovetail.sim.aws.eks import follow_auto_mode
from dovetail.sim.world import World

__all__ = ["BOOTS", "CLUSTER", "REGION", "EmbeddedAws", "run_simulated_aws", "write_env"]

CLUSTER, REGION = "dovetail", "us-west-2"
HEADER = "# Written by dovetail up; source it in a shell."


@dataclass(slots=True)
class EmbeddedAws:
    """The cloud of an embedded cluster. Without boto3 there is no endpoint, and `url` is empty."""

    aws: SimulatedAws
    joining: NodeJoiner
    cluster: str
    url: str = ""

    def build_environment(self, kubeconfig: Path) -> dict[str, str]:
        """What a shell needs to see the cluster and its cloud; the keys open nothing but this simulation."""
        return {
            "KUBECONFIG": str(kubeconfig.absolute()),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": f"AKIA{self.aws.account}0000",
            "AWS_SECRET_ACCESS_KEY": "simulated",
            "CLUSTER_NAME": self.cluster,
            "INTERRUPTION_QUEUE": self.cluster,
        }


@asynccontextmanager
async def run_simulated_aws(
    world: World,
    endpoint: str,
    seed: int,
    *,
    cluster: str = CLUSTER,
    boots: tuple[float, float] = BOOTS,
    served: bool = True,
) -> AsyncIterator[EmbeddedAws]:
    """A cloud with this cluster in it, and the machines of the nodes the cluster was kept with."""
    aws = SimulatedAws(world.clock, seed, REGION, cluster=cluster)
    aws.eks.clusters[cluster].endpoint = endpoint
    aws.add_interruption_queue(cluster)
    follow_auto_mode(aws.world, world.server.build_local_client("eks"), cluster)
    # Ids that were given before a restart must not be given again.
    aws.world.rng.seed(f"{seed} from {world.server.store.revision}")
    # A machine that joins in no time must run before that, and who is in a hurry is so to the end.
    aws.instances.starts = (min(STARTS[0], boots[0] / 4), min(STARTS[1], boots[0] / 2))
    aws.instances.ends = (min(ENDS[0], boots[0] / 2), min(ENDS[1], boots[0]))
    joining = NodeJoiner(aws, world, cluster, boots=boots)
    joining.adopt_nodes()
    if not served or find_spec("botocore") is None:
        yield EmbeddedAws(aws, joining, cluster)
        return
    from dovetail.sim.aws.wire.server import serve_aws as listening

    async with listening(aws) as server:
        yield EmbeddedAws(aws, joining, cluster, server.url)


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
