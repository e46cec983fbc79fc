"""The simulated AWS over HTTP, for boto3, the AWS CLI and Terraform.

query_protocol   form-encoded and JSON requests and their answers, by botocore's service models
server           the HTTP server
moto_fallback    moto answers what the simulation does not know, over the same resources
"""
