"""ZoneShifts are kept in the cluster, in a DynamoDB table, or in the cluster with a table that follows."""
