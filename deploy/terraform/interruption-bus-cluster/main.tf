# A cluster behind the interruption bus: its queue, whose tags are its registration, and an entry in the hub's table.

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {
  region = var.region
}

locals {
  queue_name = coalesce(var.queue_name, var.cluster_name)
  queue_arn  = "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${local.queue_name}"
}

module "documents" {
  source = "../documents"

  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region
  account   = data.aws_caller_identity.current.account_id
  queue_arn = local.queue_arn

  router_role_arn = coalesce(var.router_role_arn, "*")
}

resource "aws_sqs_queue" "this" {
  region                     = var.region
  name                       = local.queue_name
  visibility_timeout_seconds = module.documents.bus_cluster_queue.visibility
  message_retention_seconds  = module.documents.bus_cluster_queue.retention
  receive_wait_time_seconds  = module.documents.bus_cluster_queue.wait
  sqs_managed_sse_enabled    = true

  tags = merge(var.tags, { "dovetail.sh/bus" = "true", "dovetail.sh/cluster" = var.cluster_name })
}

# Where the router's role is known, it alone may write.
data "aws_iam_policy_document" "queue" {
  source_policy_documents = concat(
    [module.documents.bus_policies["clusterQueuePolicy"]],
    var.router_role_arn == null ? [] : [module.documents.bus_policies["clusterQueueRouterPolicy"]],
  )
}

resource "aws_sqs_queue_policy" "this" {
  region    = var.region
  queue_url = aws_sqs_queue.this.url
  policy    = data.aws_iam_policy_document.queue.json
}

resource "aws_dynamodb_table_item" "this" {
  count = var.registry_table == null ? 0 : 1

  region     = var.region
  table_name = var.registry_table
  hash_key   = "pk"
  item = jsonencode({
    pk       = { S = "${data.aws_caller_identity.current.account_id}#${data.aws_region.current.region}#${var.cluster_name}" }
    queueUrl = { S = aws_sqs_queue.this.url }
  })
}
