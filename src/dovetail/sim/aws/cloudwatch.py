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
def put_alarm(request: AwsRequest) -> Json:
    watch, name, now = (
        request.regional_state(CloudWatch),
        request.get_required("AlarmName"),
        request.world.clock.now(),
    )
    arn = watch.alarm_arn(name)
    given = {key: value for key, value in request.given.items() if key != "Tags"}
    lists = {key: request.get(key, []) for key in ("OKActions", "AlarmActions", "InsufficientDataActions")}
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
    watch.tags.setdefault(arn, tags_of(request.get("Tags")))
    return {}


@operation("cloudwatch", "DescribeAlarms")
def describe_alarms(request: AwsRequest) -> Json:
    names, prefix = request.get("AlarmNames"), request.get("AlarmNamePrefix", "")
    found = [
        each
        for name, each in sorted(request.regional_state(CloudWatch).alarms.items())
        if name.startswith(prefix) and (not names or name in names)
    ]
    return {"MetricAlarms": found, "CompositeAlarms": []}


@operation("cloudwatch", "DeleteAlarms")
def delete_alarms(request: AwsRequest) -> Json:
    watch = request.regional_state(CloudWatch)
    for name in request.get_required("AlarmNames"):
        watch.alarms.pop(name, None)
        watch.tags.pop(watch.alarm_arn(name), None)
    return {}


@operation("cloudwatch", "PutDashboard")
def put_dashboard(request: AwsRequest) -> Json:
    request.regional_state(CloudWatch).dashboards[request.get_required("DashboardName")] = (
        request.get_required("DashboardBody")
    )
    return {"DashboardValidationMessages": []}


@operation("cloudwatch", "GetDashboard")
def get_dashboard(request: AwsRequest) -> Json:
    name = request.get_required("DashboardName")
    found = request.regional_state(CloudWatch).dashboards.get(name)
    if found is None:
        raise request.refuse("DashboardNotFoundError", f"Dashboard {name} does not exist", 404)
    arn = f"arn:aws:cloudwatch::{request.account}:dashboard/{name}"
    return {"DashboardArn": arn, "DashboardName": name, "DashboardBody": found}


@operation("cloudwatch", "DeleteDashboards")
def delete_dashboards(request: AwsRequest) -> Json:
    for name in request.get_required("DashboardNames"):
        request.regional_state(CloudWatch).dashboards.pop(name, None)
    return {}


@operation("cloudwatch", "ListTagsForResource")
def list_tags(request: AwsRequest) -> Json:
    return {
        "Tags": tag_list(request.regional_state(CloudWatch).tags.get(request.get_required("ResourceARN"), {}))
    }


@operation("cloudwatch", "TagResource")
def tag_resource(request: AwsRequest) -> Json:
    request.regional_state(CloudWatch).tags.setdefault(request.get_required("ResourceARN"), {}).update(
        tags_of(request.get_required("Tags"))
    )
    return {}


@operation("cloudwatch", "UntagResource")
def untag_resource(request: AwsRequest) -> Json:
    for key in request.get_required("TagKeys"):
        request.regional_state(CloudWatch).tags.get(request.get_required("ResourceARN"), {}).pop(key, None)
    return {}
