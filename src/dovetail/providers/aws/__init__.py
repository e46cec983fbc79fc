"""EC2 and its friends: what can be bought there, what a node of it costs, and how one is had and let go.

Deciding what to buy is not done here. The catalogue needs no AWS account; the provider is asked through
`dovetail.aws` alone, so that nothing here knows of boto3.
"""
