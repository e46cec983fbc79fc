"""Objects that are in an embedded cluster from the start, and the Service that its controller is behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from dovetail.api import crds
from dovetail.app.published_settings import NAMESPACE, build_config_map
from dovetail.runtime.history_server import HistoryServer
from dovetail.settings import Settings
from dovetail.sim.kube.http.replies import ServerReply, build_text_reply
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from dovetail.state.default_nodepool import build_default_nodepool

if TYPE_CHECKING:
    from dovetail.app.controller import Dovetail

__all__ = ["create_default_pool", "create_storage_class", "publish_settings", "put_behind_service"]

Json = dict[str, Any]
POOLS, STORAGE = "nodepools.karpenter.sh", "storageclasses.storage.k8s.io"
GP3 = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "gp3",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "ebs.csi.aws.com",
    "parameters": {"type": "gp3"},
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}


def create_default_pool(
    world: World, cloud: Literal["aws", "kwok"], name: str, pool: Mapping[str, Any]
) -> None:
    """Create a node class and a NodePool, both called default, unless the cluster has some."""
    classes = crds.find_provider_api(cloud).kind.resource
    if world.api.list(POOLS) or world.api.list(classes):
        return
    _create_object(world, classes, _build_node_class(cloud, name))
    _create_object(world, POOLS, build_default_nodepool(cloud, **pool))


def _build_node_class(cloud: Literal["aws", "kwok"], cluster: str) -> Json:
    kind = crds.find_provider_api(cloud).kind
    spec = {"spec": _build_ec2_spec(cluster)} if cloud == "aws" else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "default"}, **spec}


def _build_ec2_spec(cluster: str) -> Json:
    discovered = [{"tags": {"karpenter.sh/discovery": cluster}}]
    return {
        "role": f"KarpenterNodeRole-{cluster}",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": discovered,
        "securityGroupSelectorTerms": discovered,
    }


def create_storage_class(world: World) -> None:
    """Create the default StorageClass, as an EKS cluster with the EBS driver has it, unless there is one."""
    if not world.api.list(STORAGE):
        _create_object(world, STORAGE, GP3)


def publish_settings(
    world: World, name: str, settings: Settings, region: str = "", endpoint: str = ""
) -> None:
    """Write what commands need to look at this cluster; what an earlier run has written is replaced."""
    document = build_config_map(name, settings, region, endpoint)
    if not _create_object(world, "configmaps", document):
        world.api.update("configmaps", document)


def _create_object(world: World, resource: str, document: Json) -> bool:
    """Create an object; false where one of that name is there already."""
    try:
        world.api.create(resource, document)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return False
    return True


SERVICE, PORT = "dovetail", "http-metrics"


def put_behind_service(world: World, dovetail: Dovetail) -> None:
    """Have the controller answer behind a Service, as it does where the chart installs it.

    It is asked as any other is: `kubectl get --raw` of services/dovetail:http-metrics/proxy/history.
    """
    history = HistoryServer(dovetail.history.ring, dovetail.clock, list_told=dovetail.list_told)

    def answer(path: str, query: Iterable[tuple[str, str]], known: str) -> ServerReply:
        if path == "metrics":
            return build_text_reply(dovetail.render_metrics().decode())
        if path != "history":
            return build_text_reply("404: Not Found", 404)
        reply = history.answer(query, known)
        headers = {**reply.headers}
        content = headers.pop("Content-Type", "text/plain; charset=utf-8")
        return ServerReply(reply.status, reply.body, content, tuple(headers.items()))

    named = {"app.kubernetes.io/name": SERVICE, "app.kubernetes.io/instance": SERVICE}
    ports = [{"name": PORT, "port": dovetail.settings.metrics_port, "protocol": "TCP"}]
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE, "labels": named},
        "spec": {"type": "ClusterIP", "ports": ports},
    }
    _create_object(world, "services", document)
    world.server.backends[NAMESPACE, SERVICE, PORT] = answer
