"""CloudWatch's alarms and dashboards: they are kept, and nothing ever rings."""

from __future__ import annotations

from dovetail.sim.aws.filters import tag_list, tags_of
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["CloudWatch"]


class CloudWatch(ServiceState):
    """Alarms and dashboards by name, tags by ARN."""

    def init_state(self) -> None:
        self.alarms: dict[str, Json] = {}
        self.dashboards: dict[str, str] = {}
        self.tags: dict[str, dict[str, str]] = {}

    def alarm_arn(self, name: str) -> str:
        return f"arn:aws:cloudwatch:{self.region}:{self.account}:alarm:{name}"


@operation("cloudwatch", "PutMetricAlarm")
def put_alarm(ask: AwsRequest) -> Json:
    watch, name, now = ask.regional_state(CloudWatch), ask.get_required("AlarmName"), ask.world.clock.now()
    arn = watch.alarm_arn(name)
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
def describe_alarms(ask: AwsRequest) -> Json:
    names, prefix = ask.get("AlarmNames"), ask.get("AlarmNamePrefix", "")
    found = [
        each
        for name, each in sorted(ask.regional_state(CloudWatch).alarms.items())
        if name.startswith(prefix) and (not names or name in names)
    ]
    return {"MetricAlarms": found, "CompositeAlarms": []}


@operation("cloudwatch", "DeleteAlarms")
def delete_alarms(ask: AwsRequest) -> Json:
    watch = ask.regional_state(CloudWatch)
    for name in ask.get_required("AlarmNames"):
        watch.alarms.pop(name, None)
        watch.tags.pop(watch.alarm_arn(name), None)
    return {}


@operation("cloudwatch", "PutDashboard")
def put_dashboard(ask: AwsRequest) -> Json:
    ask.regional_state(CloudWatch).dashboards[ask.get_required("DashboardName")] = ask.get_required(
        "DashboardBody"
    )
    return {"DashboardValidationMessages": []}


@operation("cloudwatch", "GetDashboard")
def get_dashboard(ask: AwsRequest) -> Json:
    name = ask.get_required("DashboardName")
    found = ask.regional_state(CloudWatch).dashboards.get(name)
    if found is None:
        raise ask.refuse("DashboardNotFoundError", f"Dashboard {name} does not exist", 404)
    arn = f"arn:aws:cloudwatch::{ask.account}:dashboard/{name}"
    return {"DashboardArn": arn, "DashboardName": name, "DashboardBody": found}


@operation("cloudwatch", "DeleteDashboards")
def delete_dashboards(ask: AwsRequest) -> Json:
    for name in ask.get_required("DashboardNames"):
        ask.regional_state(CloudWatch).dashboards.pop(name, None)
    return {}


@operation("cloudwatch", "ListTagsForResource")
def list_tags(ask: AwsRequest) -> Json:
    return {"Tags": tag_list(ask.regional_state(CloudWatch).tags.get(ask.get_required("ResourceARN"), {}))}


@operation("cloudwatch", "TagResource")
def tag_resource(ask: AwsRequest) -> Json:
    ask.regional_state(CloudWatch).tags.setdefault(ask.get_required("ResourceARN"), {}).update(
        tags_of(ask.get_required("Tags"))
    )
    return {}


@operation("cloudwatch", "UntagResource")
def untag_resource(ask: AwsRequest) -> Json:
    for key in ask.get_required("TagKeys"):
        ask.regional_state(CloudWatch).tags.get(ask.get_required("ResourceARN"), {}).pop(key, None)
    return {}
