"""Controllers of the AWS provider: they look after node classes, and hear what EC2 has to say."""
