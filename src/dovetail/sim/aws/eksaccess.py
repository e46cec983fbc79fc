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
def create_entry(request: AwsRequest) -> Json:
    cluster, principal = find_cluster(request, "clusterName"), request.get_required("principalArn")
    access, kind = request.regional_state(EksAccess), request.get("type", "STANDARD")
    if (cluster.name, principal) in access.entries:
        said = "The specified access entry resource is already in use on this cluster."
        raise request.refuse("ResourceInUseException", said, 409)
    now, id_ = request.world.clock.now(), request.world.random_uuid()
    at = f"arn:aws:eks:{request.region}:{request.account}:access-entry/{cluster.name}"
    access.entries[cluster.name, principal] = {
        "clusterName": cluster.name,
        "principalArn": principal,
        "accessEntryArn": f"{at}/role/{request.account}/{principal.rpartition('/')[2]}/{id_}",
        "kubernetesGroups": request.get("kubernetesGroups") or GROUPS.get(kind, []),
        "username": request.get("username")
        or (NODES if kind in GROUPS else f"{principal}/{{{{SessionName}}}}"),
        "type": kind,
        "createdAt": now,
        "modifiedAt": now,
        "tags": dict(request.get("tags", {})),
    }
    return {"accessEntry": access.entries[cluster.name, principal]}


def _find_entry(request: AwsRequest) -> Json:
    found = request.regional_state(EksAccess).entries.get(
        (find_cluster(request, "clusterName").name, request.get_required("principalArn"))
    )
    if found is None:
        said = f"The specified principalArn could not be found: {request.get_required('principalArn')}."
        raise request.refuse("ResourceNotFoundException", said, 404)
    return found


@operation("eks", "DescribeAccessEntry")
def describe_entry(request: AwsRequest) -> Json:
    return {"accessEntry": _find_entry(request)}


@operation("eks", "UpdateAccessEntry")
def update_entry(request: AwsRequest) -> Json:
    found = _find_entry(request)
    found |= {
        name: request.get(name) for name in ("kubernetesGroups", "username") if request.get(name) is not None
    }
    found["modifiedAt"] = request.world.clock.now()
    return {"accessEntry": found}


@operation("eks", "DeleteAccessEntry")
def delete_entry(request: AwsRequest) -> Json:
    found = _find_entry(request)
    del request.regional_state(EksAccess).entries[found["clusterName"], found["principalArn"]]
    return {}


@operation("eks", "ListAccessEntries")
def list_entries(request: AwsRequest) -> Json:
    name = find_cluster(request, "clusterName").name
    return {
        "accessEntries": [
            one for cluster, one in request.regional_state(EksAccess).entries if cluster == name
        ]
    }


@operation("eks", "CreatePodIdentityAssociation")
def create_association(request: AwsRequest) -> Json:
    cluster, access = find_cluster(request, "clusterName"), request.regional_state(EksAccess)
    whose = {name: request.get_required(name) for name in ("namespace", "serviceAccount")}
    if any(whose.items() <= each.items() for each in _list_cluster_associations(access, cluster.name)):
        raise request.refuse("ResourceInUseException", "An association for it already exists.", 409)
    id_, now = f"a-{request.world.random_hex(17)}", request.world.clock.now()
    at = f"arn:aws:eks:{request.region}:{request.account}:podidentityassociation"
    access.associations[cluster.name, id_] = {
        "clusterName": cluster.name,
        **whose,
        "roleArn": request.get_required("roleArn"),
        "associationArn": f"{at}/{cluster.name}/{id_}",
        "associationId": id_,
        "disableSessionTags": bool(request.get("disableSessionTags", False)),
        "createdAt": now,
        "modifiedAt": now,
        "tags": dict(request.get("tags", {})),
    }
    return {"association": access.associations[cluster.name, id_]}


def _list_cluster_associations(access: EksAccess, cluster: str) -> list[Json]:
    return [each for (name, _), each in access.associations.items() if name == cluster]


def _find_association(request: AwsRequest) -> Json:
    name, id_ = find_cluster(request, "clusterName").name, request.get_required("associationId")
    found = request.regional_state(EksAccess).associations.get((name, id_))
    if found is None:
        raise request.refuse("ResourceNotFoundException", f"No association found for ID: {id_}", 404)
    return found


@operation("eks", "DescribePodIdentityAssociation")
def describe_association(request: AwsRequest) -> Json:
    return {"association": _find_association(request)}


@operation("eks", "UpdatePodIdentityAssociation")
def update_association(request: AwsRequest) -> Json:
    found = _find_association(request)
    found["roleArn"] = request.get("roleArn", found["roleArn"])
    found["modifiedAt"] = request.world.clock.now()
    return {"association": found}


@operation("eks", "DeletePodIdentityAssociation")
def delete_association(request: AwsRequest) -> Json:
    found = _find_association(request)
    del request.regional_state(EksAccess).associations[found["clusterName"], found["associationId"]]
    return {"association": found}


@operation("eks", "ListPodIdentityAssociations")
def list_associations(request: AwsRequest) -> Json:
    wanted = {name: request.get(name) for name in ("namespace", "serviceAccount") if request.get(name)}
    listed = _list_cluster_associations(
        request.regional_state(EksAccess), find_cluster(request, "clusterName").name
    )
    shown = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    return {
        "associations": [
            {name: each[name] for name in shown} for each in listed if wanted.items() <= each.items()
        ]
    }


def _find_tags(request: AwsRequest) -> dict[str, str]:
    """The tags of whatever an ARN names."""
    arn, access = request.get_required("resourceArn"), request.regional_state(EksAccess)
    for each in (*access.entries.values(), *access.associations.values()):
        if arn in (each.get("accessEntryArn"), each.get("associationArn")):
            tags: dict[str, str] = each["tags"]
            return tags
    raise request.refuse("NotFoundException", f"No resource found for ARN {arn}", 404)


@operation("eks", "ListTagsForResource")
def list_tags(request: AwsRequest) -> Json:
    return {"tags": _find_tags(request)}


@operation("eks", "TagResource")
def tag_resource(request: AwsRequest) -> Json:
    _find_tags(request).update(request.get_required("tags"))
    return {}


@operation("eks", "UntagResource")
def untag_resource(request: AwsRequest) -> Json:
    tags = _find_tags(request)
    for key in request.get_required("tagKeys"):
        tags.pop(key, None)
    return {}
