"""The simulated IAM and STS.

roles         roles, policies and instance profiles
permissions   the actions and resources that a request needs to be allowed
sts           who asks, and roles that are assumed
"""
