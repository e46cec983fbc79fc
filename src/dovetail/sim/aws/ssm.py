"""SSM parameters: those AWS publishes about images, and an account's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.images import Images

__all__ = ["Parameters"]

PUBLISHED = "/aws/service/"


@dataclass(slots=True)
class Parameter:
    """A parameter of the account."""

    value: str
    kind: str
    version: int
    changed: datetime


class Parameters(Subject):
    """The parameters of an account in a region."""

    def begin(self) -> None:
        self.own: dict[str, Parameter] = {}

    def put(self, name: str, value: str, kind: str = "String") -> Parameter:
        before = self.own.get(name)
        made = Parameter(value, kind, before.version + 1 if before else 1, self.clock.now())
        self.own[name] = made
        return made


@operation("ssm", "GetParameter")
def get_parameter(ask: Ask) -> Json:
    found = _found(ask, _plain(ask.need("Name")))
    if found is None:
        raise ask.refuse("ParameterNotFound", f"Parameter {ask.need('Name')} not found.")
    return {"Parameter": found}


@operation("ssm", "GetParameters")
def get_parameters(ask: Ask) -> Json:
    found = {name: _found(ask, _plain(name)) for name in ask.need("Names")}
    return {
        "Parameters": [each for each in found.values() if each is not None],
        "InvalidParameters": [name for name, each in found.items() if each is None],
    }


@operation("ssm", "GetParametersByPath")
def get_by_path(ask: Ask) -> Json:
    path, deep = ask.need("Path").rstrip("/") + "/", ask.get("Recursive", False)
    names = sorted([*ask.here(Images).parameters, *ask.here(Parameters).own])
    under = [name for name in names if name.startswith(path) and (deep or "/" not in name[len(path) :])]
    start, size = int(ask.get("NextToken") or 0), ask.get("MaxResults", 10)
    more = {"NextToken": str(start + size)} if start + size < len(under) else {}
    return {"Parameters": [_found(ask, name) for name in under[start : start + size]], **more}


@operation("ssm", "PutParameter")
def put_parameter(ask: Ask) -> Json:
    name, kept = ask.need("Name"), ask.here(Parameters)
    if name.lower().startswith("/aws/service"):
        raise ask.refuse("AccessDeniedException", f"No access to reserved parameter name: {name}.")
    if name in kept.own and not ask.get("Overwrite"):
        raise ask.refuse(
            "ParameterAlreadyExists", "The parameter already exists. Set Overwrite to change it."
        )
    made = kept.put(name, ask.need("Value"), ask.get("Type", "String"))
    return {"Version": made.version, "Tier": "Standard"}


@operation("ssm", "DeleteParameter")
def delete_parameter(ask: Ask) -> Json:
    if ask.here(Parameters).own.pop(_plain(ask.need("Name")), None) is None:
        raise ask.refuse("ParameterNotFound", f"Parameter {ask.need('Name')} not found.")
    return {}


def _plain(name: str) -> str:
    """A name may be given as an ARN."""
    if name.startswith("arn:"):
        return "/" + name.partition(":parameter/")[2]
    return name


def _found(ask: Ask, name: str) -> Json | None:
    arn = f"arn:aws:ssm:{ask.region}:{'' if name.startswith(PUBLISHED) else ask.account}:parameter{name}"
    if name.startswith(PUBLISHED):
        value = ask.here(Images).parameters.get(name)
        if value is None:
            return None
        kind = "aws:ec2:image" if value.startswith("ami-") else "text"
        return {"Name": name, "Type": "String", "Value": value, "Version": 1, "ARN": arn, "DataType": kind}
    own = ask.here(Parameters).own.get(name)
    if own is None:
        return None
    return {
        "Name": name,
        "Type": own.kind,
        "Value": own.value,
        "Version": own.version,
        "LastModifiedDate": own.changed,
        "ARN": arn,
        "DataType": "text",
    }
