"""The simulated EC2: what is sold, what is launched, and how an instance becomes a node.

types             instance types, their offerings and prices
capacity          how many instances a pool of type, zone and capacity type has left, and quotas
network           VPCs, subnets, security groups, network interfaces
images            AMIs, and the SSM parameters that name them
reserved_instances instances that are paid for in advance
templates         launch templates
launch_targets    capacity reservations and placement groups
launch            what one launch asks for, with its template
fleet             CreateFleet and RunInstances
instance_record   one instance, as DescribeInstances shows it
instances         the instances of an account in a region, and how they end
tagging           CreateTags, DeleteTags, DescribeTags
user_data         what a machine reads in its user data when it boots
node_join         an instance boots, joins its cluster as a Node, and takes it along when it ends
"""
