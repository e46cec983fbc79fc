# Another account behind a hub: its rules write to the hub's queues, and the hub's router may look at its instances.

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {
  region = var.region
}

locals {
  rules = { for name, rule in module.documents.bus_rules : name => rule if rule.optional == "" || contains(var.optional_kinds, rule.optional) }
}

module "documents" {
  source = "../documents"

  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region
  account   = data.aws_caller_identity.current.account_id
  name      = var.name
}

# Rules, and the role they write to another account with

data "aws_iam_policy_document" "writer_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "writer" {
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [var.hub_queue_arns.urgent, var.hub_queue_arns.bulk]
  }
}

resource "aws_iam_role" "writer" {
  name                 = "${var.name}-${data.aws_region.current.region}-writer"
  assume_role_policy   = data.aws_iam_policy_document.writer_trust.json
  permissions_boundary = var.permissions_boundary

  tags = var.tags
}

resource "aws_iam_role_policy" "writer" {
  name   = "hub"
  role   = aws_iam_role.writer.name
  policy = data.aws_iam_policy_document.writer.json
}

resource "aws_cloudwatch_event_rule" "this" {
  for_each = local.rules

  region        = var.region
  name          = "${var.name}-${each.key}"
  event_pattern = each.value.pattern

  tags = var.tags
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = local.rules

  region    = var.region
  rule      = aws_cloudwatch_event_rule.this[each.key].name
  target_id = "Hub"
  arn       = each.value.lane == "urgent" ? var.hub_queue_arns.urgent : var.hub_queue_arns.bulk
  role_arn  = aws_iam_role.writer.arn

  retry_policy {
    maximum_event_age_in_seconds = module.documents.bus_retry.age
    maximum_retry_attempts       = module.documents.bus_retry.attempts
  }

  dead_letter_config {
    arn = aws_sqs_queue.letters.arn
  }
}

resource "aws_sqs_queue" "letters" {
  region                    = var.region
  name                      = "${var.name}-dlq"
  message_retention_seconds = module.documents.bus_queues["dlq"].retention
  sqs_managed_sse_enabled   = true

  tags = var.tags
}

resource "aws_sqs_queue_policy" "letters" {
  region    = var.region
  queue_url = aws_sqs_queue.letters.url
  policy    = module.documents.bus_policies["queuePolicy"]
}

# The role the router reads instances with

data "aws_iam_policy_document" "reader_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "AWS"
      identifiers = [var.router_role_arn]
    }

    condition {
      test     = "StringEquals"
      variable = "sts:ExternalId"
      values   = [var.external_id]
    }
  }
}

resource "aws_iam_role" "reader" {
  name                 = var.reader_role_name
  assume_role_policy   = data.aws_iam_policy_document.reader_trust.json
  permissions_boundary = var.permissions_boundary

  tags = var.tags
}

resource "aws_iam_role_policy" "reader" {
  name   = "instances"
  role   = aws_iam_role.reader.name
  policy = module.documents.bus_policies["readerPolicy"]
}
