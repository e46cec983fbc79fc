"""Messages about zonal shifts come from SQS, from SNS over HTTPS, or from a sender that proves who it is."""
