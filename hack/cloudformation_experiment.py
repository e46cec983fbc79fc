"""The experiment as a stack: what interrupts some spot machines of a cluster, and with which role."""

from __future__ import annotations

from cloudformation import GetAtt, Json, Ref, Sub, policy

from iac import experiment

PLACES = {
    "Partition": "AWS::Partition",
    "Region": "AWS::Region",
    "Account": "AWS::AccountId",
    "Cluster": "ClusterName",
}


def experiment_template() -> Json:
    source = experiment()
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Interrupts some spot machines of a cluster, to see that warnings find their way",
        "Parameters": {
            "ClusterName": {"Type": "String", "Description": "Name of the EKS cluster"},
            "Instances": {
                "Type": "Number",
                "Default": 1,
                "MinValue": 1,
                "Description": "How many machines are interrupted",
            },
            "Notice": {
                "Type": "String",
                "Default": "PT2M",
                "AllowedPattern": "PT([2-9]|1[0-5])M",
                "Description": "From start to end: PT2M to PT15M; the warning comes 2 minutes before",
            },
        },
        "Resources": {"Role": _role(source), "Experiment": _experiment(source)},
        "Outputs": {
            "ExperimentTemplateId": {"Value": Ref("Experiment")},
            "RoleArn": {"Value": GetAtt("Role.Arn")},
        },
    }


def _role(source: Json) -> Json:
    own = {"PolicyName": "Interrupt", "PolicyDocument": policy(source["policy"], PLACES)}
    properties = {"AssumeRolePolicyDocument": policy(source["trust"], PLACES), "Policies": [own]}
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _experiment(source: Json) -> Json:
    target = {
        "ResourceType": source["kind"],
        "ResourceTags": {source["mark"]: Ref("ClusterName")},
        "Filters": [{"Path": "State.Name", "Values": ["running"]}],
        "SelectionMode": Sub("COUNT(${Instances})"),
    }
    action = {
        "ActionId": source["action"],
        "Parameters": {"durationBeforeInterruption": Ref("Notice")},
        "Targets": {"SpotInstances": "machines"},
    }
    properties = {
        "Description": Sub("Interrupts spot machines of ${ClusterName}"),
        "RoleArn": GetAtt("Role.Arn"),
        "StopConditions": [{"Source": "none"}],
        "Targets": {"machines": target},
        "Actions": {"interrupt": action},
        "Tags": {"Name": Sub("dovetail-interruptions-${ClusterName}")},
    }
    return {"Type": "AWS::FIS::ExperimentTemplate", "Properties": properties}
