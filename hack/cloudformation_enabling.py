"""Zonal shift switched on for a cluster that no stack of ours makes: a function that asks EKS once."""

from __future__ import annotations

from cloudformation import GetAtt, Json, Program, Ref, Sub

__all__ = ["FUNCTION", "on_cluster"]

# The whole function, as CloudFormation takes it in a template. It waits for the cluster's update, because
# autoshift can be set up only for a cluster that ARC knows.
FUNCTION = '''\
import time
import boto3
import cfnresponse

def enable(eks, name):
    """Switch it on and give back the cluster's ARN; what is on already stays so, and EKS is not asked."""
    told = eks.describe_cluster(name=name)["cluster"]
    if told.get("zonalShiftConfig", {}).get("enabled"):
        return told["arn"]
    asked = eks.update_cluster_config(name=name, zonalShiftConfig={"enabled": True})["update"]
    for _ in range(80):
        update = eks.describe_update(name=name, updateId=asked["id"])["update"]
        if update["status"] != "InProgress":
            break
        time.sleep(10)
    if update["status"] != "Successful":
        raise RuntimeError(f"zonal shift of {name}: the update is {update['status']}")
    return told["arn"]

def handler(event, context):
    try:
        said = {}
        if event["RequestType"] != "Delete":
            said["ClusterArn"] = enable(boto3.client("eks"), event["ResourceProperties"]["ClusterName"])
        cfnresponse.send(event, context, cfnresponse.SUCCESS, said, "zonal-shift-of-cluster")
    except Exception as error:
        cfnresponse.send(event, context, cfnresponse.FAILED, {}, "zonal-shift-of-cluster", reason=str(error))
'''


def on_cluster(cluster: str) -> Json:
    """The function, its role, and the request; deleting the stack leaves the cluster as it is."""
    wanted = {"Condition": "OnCluster"}
    actions = ["eks:DescribeCluster", "eks:UpdateClusterConfig", "eks:DescribeUpdate"]
    allowed = {"Effect": "Allow", "Action": actions, "Resource": Sub(cluster)}
    trusted = {
        "Effect": "Allow",
        "Principal": {"Service": "lambda.amazonaws.com"},
        "Action": ["sts:AssumeRole"],
    }
    logs = "arn:${AWS::Partition}:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    role = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trusted]},
        "ManagedPolicyArns": [Sub(logs)],
        "Policies": [
            {
                "PolicyName": "Enable",
                "PolicyDocument": {"Version": "2012-10-17", "Statement": [allowed]},
            }
        ],
    }
    function = {
        "Description": Sub("Switches zonal shift on for ${ClusterName}"),
        "Runtime": "python3.13",
        "Handler": "index.handler",
        "Timeout": 840,
        "Role": GetAtt("EnablerRole.Arn"),
        "Code": {"ZipFile": Program(FUNCTION)},
    }
    asked = {"ServiceToken": GetAtt("Enabler.Arn"), "ClusterName": Ref("ClusterName")}
    return {
        "EnablerRole": {"Type": "AWS::IAM::Role", **wanted, "Properties": role},
        "Enabler": {"Type": "AWS::Lambda::Function", **wanted, "Properties": function},
        "Enabled": {"Type": "AWS::CloudFormation::CustomResource", **wanted, "Properties": asked},
    }
