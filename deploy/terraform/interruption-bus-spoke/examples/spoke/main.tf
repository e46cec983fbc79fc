module "spoke" {
  source = "../.."

  hub_queue_arns = {
    urgent = "arn:aws:sqs:us-east-2:111122223333:dovetail-bus-urgent"
    bulk   = "arn:aws:sqs:us-east-2:111122223333:dovetail-bus-bulk"
  }
  router_role_arn = "arn:aws:iam::111122223333:role/dovetail-bus-us-east-2-router"
  external_id     = "something only the two of you know"
}
