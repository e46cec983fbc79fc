"""Who is let into an EKS cluster, and as whom pods act: access entries and pod identity associations."""

from __future__ import annotations

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.eks import cluster_of

__all__ = ["Access"]

NODES = "system:node:{{EC2PrivateDNSName}}"
# What nodes of a kind belong to, without being told.
GROUPS = {"EC2_LINUX": ["system:nodes"], "EC2_WINDOWS": ["system:nodes", "eks:kube-proxy-windows"]}


class Access(Subject):
    """Entries by cluster and principal, associations by cluster and id."""

    def begin(self) -> None:
        self.entries: dict[tuple[str, str], Json] = {}
        self.associations: dict[tuple[str, str], Json] = {}


@operation("eks", "CreateAccessEntry")
def create_entry(ask: Ask) -> Json:
    cluster, principal = cluster_of(ask, "clusterName"), ask.need("principalArn")
    access, kind = ask.here(Access), ask.get("type", "STANDARD")
    if (cluster.name, principal) in access.entries:
        said = "The specified access entry resource is already in use on this cluster."
        raise ask.refuse("ResourceInUseException", said, 409)
    now, id_ = ask.ground.clock.now(), ask.ground.uuid()
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


def _entry(ask: Ask) -> Json:
    found = ask.here(Access).entries.get((cluster_of(ask, "clusterName").name, ask.need("principalArn")))
    if found is None:
        said = f"The specified principalArn could not be found: {ask.need('principalArn')}."
        raise ask.refuse("ResourceNotFoundException", said, 404)
    return found


@operation("eks", "DescribeAccessEntry")
def describe_entry(ask: Ask) -> Json:
    return {"accessEntry": _entry(ask)}


@operation("eks", "UpdateAccessEntry")
def update_entry(ask: Ask) -> Json:
    found = _entry(ask)
    found |= {name: ask.get(name) for name in ("kubernetesGroups", "username") if ask.get(name) is not None}
    found["modifiedAt"] = ask.ground.clock.now()
    return {"accessEntry": found}


@operation("eks", "DeleteAccessEntry")
def delete_entry(ask: Ask) -> Json:
    found = _entry(ask)
    del ask.here(Access).entries[found["clusterName"], found["principalArn"]]
    return {}


@operation("eks", "ListAccessEntries")
def list_entries(ask: Ask) -> Json:
    name = cluster_of(ask, "clusterName").name
    return {"accessEntries": [one for cluster, one in ask.here(Access).entries if cluster == name]}


@operation("eks", "CreatePodIdentityAssociation")
def create_association(ask: Ask) -> Json:
    cluster, access = cluster_of(ask, "clusterName"), ask.here(Access)
    whose = {name: ask.need(name) for name in ("namespace", "serviceAccount")}
    if any(whose.items() <= each.items() for each in _of(access, cluster.name)):
        raise ask.refuse("ResourceInUseException", "An association for it already exists.", 409)
    id_, now = f"a-{ask.ground.hexes(17)}", ask.ground.clock.now()
    at = f"arn:aws:eks:{ask.region}:{ask.account}:podidentityassociation"
    access.associations[cluster.name, id_] = {
        "clusterName": cluster.name,
        **whose,
        "roleArn": ask.need("roleArn"),
        "associationArn": f"{at}/{cluster.name}/{id_}",
        "associationId": id_,
        "disableSessionTags": bool(ask.get("disableSessionTags", False)),
        "createdAt": now,
        "modifiedAt": now,
        "tags": dict(ask.get("tags", {})),
    }
    return {"association": access.associations[cluster.name, id_]}


def _of(access: Access, cluster: str) -> list[Json]:
    return [each for (name, _), each in access.associations.items() if name == cluster]


def _association(ask: Ask) -> Json:
    name, id_ = cluster_of(ask, "clusterName").name, ask.need("associationId")
    found = ask.here(Access).associations.get((name, id_))
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"No association found for ID: {id_}", 404)
    return found


@operation("eks", "DescribePodIdentityAssociation")
def describe_association(ask: Ask) -> Json:
    return {"association": _association(ask)}


@operation("eks", "UpdatePodIdentityAssociation")
def update_association(ask: Ask) -> Json:
    found = _association(ask)
    found["roleArn"] = ask.get("roleArn", found["roleArn"])
    found["modifiedAt"] = ask.ground.clock.now()
    return {"association": found}


@operation("eks", "DeletePodIdentityAssociation")
def delete_association(ask: Ask) -> Json:
    found = _association(ask)
    del ask.here(Access).associations[found["clusterName"], found["associationId"]]
    return {"association": found}


@operation("eks", "ListPodIdentityAssociations")
def list_associations(ask: Ask) -> Json:
    wanted = {name: ask.get(name) for name in ("namespace", "serviceAccount") if ask.get(name)}
    listed = _of(ask.here(Access), cluster_of(ask, "clusterName").name)
    shown = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    return {
        "associations": [
            {name: each[name] for name in shown} for each in listed if wanted.items() <= each.items()
        ]
    }


def _tagged(ask: Ask) -> dict[str, str]:
    """The tags of whatever an ARN names."""
    arn, access = ask.need("resourceArn"), ask.here(Access)
    for each in (*access.entries.values(), *access.associations.values()):
        if arn in (each.get("accessEntryArn"), each.get("associationArn")):
            tags: dict[str, str] = each["tags"]
            return tags
    raise ask.refuse("NotFoundException", f"No resource found for ARN {arn}", 404)


@operation("eks", "ListTagsForResource")
def list_tags(ask: Ask) -> Json:
    return {"tags": _tagged(ask)}


@operation("eks", "TagResource")
def tag(ask: Ask) -> Json:
    _tagged(ask).update(ask.need("tags"))
    return {}


@operation("eks", "UntagResource")
def untag(ask: Ask) -> Json:
    tags = _tagged(ask)
    for key in ask.need("tagKeys"):
        tags.pop(key, None)
    return {}
