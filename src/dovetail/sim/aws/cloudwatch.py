"""CloudWatch's alarms and dashboards: they are kept, and nothing ever rings."""

from __future__ import annotations

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.selecting import tag_list, tags_of

__all__ = ["Watch"]


class Watch(Subject):
    """Alarms and dashboards by name, tags by ARN."""

    def begin(self) -> None:
        self.alarms: dict[str, Json] = {}
        self.dashboards: dict[str, str] = {}
        self.tags: dict[str, dict[str, str]] = {}

    def arn(self, name: str) -> str:
        return f"arn:aws:cloudwatch:{self.region}:{self.account}:alarm:{name}"


@operation("cloudwatch", "PutMetricAlarm")
def put_alarm(ask: Ask) -> Json:
    watch, name, now = ask.here(Watch), ask.need("AlarmName"), ask.ground.clock.now()
    arn = watch.arn(name)
    given = {key: value for key, value in ask.given.items() if key != "Tags"}
    lists = {key: ask.get(key, []) for key in ("OKActions", "AlarmActions", "InsufficientDataActions")}
    watch.alarms[name] = {
        "ActionsEnabled": True,
        "TreatMissingData": "missing",
        **given,
        **lists,
        "AlarmArn": arn,
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": "Unchecked: Initial alarm creation",
        "StateUpdatedTimestamp": now,
        "AlarmConfigurationUpdatedTimestamp": now,
    }
    watch.tags.setdefault(arn, tags_of(ask.get("Tags")))
    return {}


@operation("cloudwatch", "DescribeAlarms")
def describe_alarms(ask: Ask) -> Json:
    names, prefix = ask.get("AlarmNames"), ask.get("AlarmNamePrefix", "")
    found = [
        each
        for name, each in sorted(ask.here(Watch).alarms.items())
        if name.startswith(prefix) and (not names or name in names)
    ]
    return {"MetricAlarms": found, "CompositeAlarms": []}


@operation("cloudwatch", "DeleteAlarms")
def delete_alarms(ask: Ask) -> Json:
    watch = ask.here(Watch)
    for name in ask.need("AlarmNames"):
        watch.alarms.pop(name, None)
        watch.tags.pop(watch.arn(name), None)
    return {}


@operation("cloudwatch", "PutDashboard")
def put_dashboard(ask: Ask) -> Json:
    ask.here(Watch).dashboards[ask.need("DashboardName")] = ask.need("DashboardBody")
    return {"DashboardValidationMessages": []}


@operation("cloudwatch", "GetDashboard")
def get_dashboard(ask: Ask) -> Json:
    name = ask.need("DashboardName")
    found = ask.here(Watch).dashboards.get(name)
    if found is None:
        raise ask.refuse("DashboardNotFoundError", f"Dashboard {name} does not exist", 404)
    arn = f"arn:aws:cloudwatch::{ask.account}:dashboard/{name}"
    return {"DashboardArn": arn, "DashboardName": name, "DashboardBody": found}


@operation("cloudwatch", "DeleteDashboards")
def delete_dashboards(ask: Ask) -> Json:
    for name in ask.need("DashboardNames"):
        ask.here(Watch).dashboards.pop(name, None)
    return {}


@operation("cloudwatch", "ListTagsForResource")
def list_tags(ask: Ask) -> Json:
    return {"Tags": tag_list(ask.here(Watch).tags.get(ask.need("ResourceARN"), {}))}


@operation("cloudwatch", "TagResource")
def tag(ask: Ask) -> Json:
    ask.here(Watch).tags.setdefault(ask.need("ResourceARN"), {}).update(tags_of(ask.need("Tags")))
    return {}


@operation("cloudwatch", "UntagResource")
def untag(ask: Ask) -> Json:
    for key in ask.need("TagKeys"):
        ask.here(Watch).tags.get(ask.need("ResourceARN"), {}).pop(key, None)
    return {}
