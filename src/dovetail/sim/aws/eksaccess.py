"""Who is let into an EKS cluster, and as whom pods act: access entries and pod identity associations."""

from __future__ import annotations

from dovetail.sim.aws.eks import find_cluster
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["EksAccess"]

NODES = "system:node:{{EC2PrivateDNSName}}"
# What nodes of a kind belong to, without being told.
GROUPS = {"EC2_LINUX": ["system:nodes"], "EC2_WINDOWS": ["system:nodes", "eks:kube-proxy-windows"]}


class EksAccess(ServiceState):
    """Entries by cluster and principal, associations by cluster and id."""

    def init_state(self) -> None:
        self.entries: dict[tuple[str, str], Json] = {}
        self.associations: dict[tuple[str, str], Json] = {}


@operation("eks", "CreateAccessEntry")
def create_entry(ask: AwsRequest) -> Json:
    cluster, principal = find_cluster(ask, "clusterName"), ask.get_required("principalArn")
    access, kind = ask.regional_state(EksAccess), ask.get("type", "STANDARD")
    if (cluster.name, principal) in access.entries:
        said = "The specified access entry resource is already in use on this cluster."
        raise ask.refuse("ResourceInUseException", said, 409)
    now, id_ = ask.world.clock.now(), ask.world.random_uuid()
    at = f"arn:aws:eks:{ask.region}:{ask.account}:access-entry/{cluster.name}"
    access.entries[cluster.name, principal] = {
        "clusterName": cluster.name,
        "principalArn": principal,
        "accessEntryArn": f"{at}/role/{ask.account}/{principal.rpartition('/')[2]}/{id_}",
        "kubernetesGroups": ask.get("kubernetesGroups") or GROUPS.get(kind, []),
        "username": ask.get("username") or (NODES if kind in GROUPS else f"{principal}/{{{{SessionName}}}}"),
        "type": kind,
        "createdAt": now,
        "modifiedAt": now,
        "tags": dict(ask.get("tags", {})),
    }
    return {"accessEntry": access.entries[cluster.name, principal]}


def _find_entry(ask: AwsRequest) -> Json:
    found = ask.regional_state(EksAccess).entries.get(
        (find_cluster(ask, "clusterName").name, ask.get_required("principalArn"))
    )
    if found is None:
        said = f"The specified principalArn could not be found: {ask.get_required('principalArn')}."
        raise ask.refuse("ResourceNotFoundException", said, 404)
    return found


@operation("eks", "DescribeAccessEntry")
def describe_entry(ask: AwsRequest) -> Json:
    return {"accessEntry": _find_entry(ask)}


@operation("eks", "UpdateAccessEntry")
def update_entry(ask: AwsRequest) -> Json:
    found = _find_entry(ask)
    found |= {name: ask.get(name) for name in ("kubernetesGroups", "username") if ask.get(name) is not None}
    found["modifiedAt"] = ask.world.clock.now()
    return {"accessEntry": found}


@operation("eks", "DeleteAccessEntry")
def delete_entry(ask: AwsRequest) -> Json:
    found = _find_entry(ask)
    del ask.regional_state(EksAccess).entries[found["clusterName"], found["principalArn"]]
    return {}


@operation("eks", "ListAccessEntries")
def list_entries(ask: AwsRequest) -> Json:
    name = find_cluster(ask, "clusterName").name
    return {
        "accessEntries": [one for cluster, one in ask.regional_state(EksAccess).entries if cluster == name]
    }


@operation("eks", "CreatePodIdentityAssociation")
def create_association(ask: AwsRequest) -> Json:
    cluster, access = find_cluster(ask, "clusterName"), ask.regional_state(EksAccess)
    whose = {name: ask.get_required(name) for name in ("namespace", "serviceAccount")}
    if any(whose.items() <= each.items() for each in _list_cluster_associations(access, cluster.name)):
        raise ask.refuse("ResourceInUseException", "An association for it already exists.", 409)
    id_, now = f"a-{ask.world.random_hex(17)}", ask.world.clock.now()
    at = f"arn:aws:eks:{ask.region}:{ask.account}:podidentityassociation"
    access.associations[cluster.name, id_] = {
        "clusterName": cluster.name,
        **whose,
        "roleArn": ask.get_required("roleArn"),
        "associationArn": f"{at}/{cluster.name}/{id_}",
        "associationId": id_,
        "disableSessionTags": bool(ask.get("disableSessionTags", False)),
        "createdAt": now,
        "modifiedAt": now,
        "tags": dict(ask.get("tags", {})),
    }
    return {"association": access.associations[cluster.name, id_]}


def _list_cluster_associations(access: EksAccess, cluster: str) -> list[Json]:
    return [each for (name, _), each in access.associations.items() if name == cluster]


def _find_association(ask: AwsRequest) -> Json:
    name, id_ = find_cluster(ask, "clusterName").name, ask.get_required("associationId")
    found = ask.regional_state(EksAccess).associations.get((name, id_))
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"No association found for ID: {id_}", 404)
    return found


@operation("eks", "DescribePodIdentityAssociation")
def describe_association(ask: AwsRequest) -> Json:
    return {"association": _find_association(ask)}


@operation("eks", "UpdatePodIdentityAssociation")
def update_association(ask: AwsRequest) -> Json:
    found = _find_association(ask)
    found["roleArn"] = ask.get("roleArn", found["roleArn"])
    found["modifiedAt"] = ask.world.clock.now()
    return {"association": found}


@operation("eks", "DeletePodIdentityAssociation")
def delete_association(ask: AwsRequest) -> Json:
    found = _find_association(ask)
    del ask.regional_state(EksAccess).associations[found["clusterName"], found["associationId"]]
    return {"association": found}


@operation("eks", "ListPodIdentityAssociations")
def list_associations(ask: AwsRequest) -> Json:
    wanted = {name: ask.get(name) for name in ("namespace", "serviceAccount") if ask.get(name)}
    listed = _list_cluster_associations(ask.regional_state(EksAccess), find_cluster(ask, "clusterName").name)
    shown = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    return {
        "associations": [
            {name: each[name] for name in shown} for each in listed if wanted.items() <= each.items()
        ]
    }


def _find_tags(ask: AwsRequest) -> dict[str, str]:
    """The tags of whatever an ARN names."""
    arn, access = ask.get_required("resourceArn"), ask.regional_state(EksAccess)
    for each in (*access.entries.values(), *access.associations.values()):
        if arn in (each.get("accessEntryArn"), each.get("associationArn")):
            tags: dict[str, str] = each["tags"]
            return tags
    raise ask.refuse("NotFoundException", f"No resource found for ARN {arn}", 404)


@operation("eks", "ListTagsForResource")
def list_tags(ask: AwsRequest) -> Json:
    return {"tags": _find_tags(ask)}


@operation("eks", "TagResource")
def tag_resource(ask: AwsRequest) -> Json:
    _find_tags(ask).update(ask.get_required("tags"))
    return {}


@operation("eks", "UntagResource")
def untag_resource(ask: AwsRequest) -> Json:
    tags = _find_tags(ask)
    for key in ask.get_required("tagKeys"):
        tags.pop(key, None)
    return {}
