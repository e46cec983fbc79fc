# How zonal shifts reach Dovetail, and what it may ask about them.
# The pattern, the queue and policies come from ../documents, which `make iam` writes for every kit from one source.

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {
  region = var.region
}

locals {
  name        = "dovetail-zonal-${var.cluster_name}"
  by_sqs      = var.transport == "sqs"
  at          = "${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}"
  partition   = data.aws_partition.current.partition
  cluster_arn = "arn:${local.partition}:eks:${local.at}:cluster/${var.cluster_name}"
  irsa        = var.oidc_provider_arn != null
}

# Told by their names: a policy that names the rule and a rule that names the queue would wait for each other.
module "documents" {
  source = "../documents"

  partition    = local.partition
  region       = data.aws_region.current.region
  account      = data.aws_caller_identity.current.account_id
  cluster_name = var.cluster_name
  queue_arn    = "arn:${local.partition}:sqs:${local.at}:${local.name}"
  topic_arn    = "arn:${local.partition}:sns:${local.at}:${local.name}"
  table_arn    = "arn:${local.partition}:dynamodb:${local.at}:table/${local.name}"
  rule_arn     = "arn:${local.partition}:events:${local.at}:rule/${local.name}"
}

# Transport

resource "aws_sqs_queue" "letters" {
  region                    = var.region
  name                      = "${local.name}-dlq"
  message_retention_seconds = module.documents.zonal_letters.retention
  sqs_managed_sse_enabled   = true

  tags = var.tags
}

resource "aws_sqs_queue" "this" {
  count = local.by_sqs ? 1 : 0

  region                     = var.region
  name                       = local.name
  visibility_timeout_seconds = module.documents.zonal_queue.visibility
  message_retention_seconds  = module.documents.zonal_queue.retention
  receive_wait_time_seconds  = module.documents.zonal_queue.wait
  sqs_managed_sse_enabled    = true
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.letters.arn
    maxReceiveCount     = module.documents.zonal_queue.receives
  })

  tags = var.tags
}

resource "aws_sqs_queue_policy" "this" {
  count = local.by_sqs ? 1 : 0

  region    = var.region
  queue_url = aws_sqs_queue.this[0].url
  policy    = module.documents.zonal_policies["queuePolicy"]
}

resource "aws_sns_topic" "this" {
  count = local.by_sqs ? 0 : 1

  region            = var.region
  name              = local.name
  signature_version = 2
  delivery_policy = jsonencode({
    http = {
      defaultHealthyRetryPolicy = {
        numRetries         = module.documents.zonal_topic.retries
        minDelayTarget     = module.documents.zonal_topic.least
        maxDelayTarget     = module.documents.zonal_topic.most
        numMinDelayRetries = 3
        numMaxDelayRetries = 2
        numNoDelayRetries  = 0
        backoffFunction    = "exponential"
      }
      disableSubscriptionOverrides = false
    }
  })

  tags = var.tags
}

resource "aws_sns_topic_policy" "this" {
  count = local.by_sqs ? 0 : 1

  region = var.region
  arn    = aws_sns_topic.this[0].arn
  policy = module.documents.zonal_policies["topicPolicy"]
}

resource "aws_cloudwatch_event_rule" "this" {
  region        = var.region
  name          = local.name
  description   = "Zonal shifts, for ${var.cluster_name}"
  event_pattern = module.documents.zonal_pattern

  tags = var.tags
}

resource "aws_cloudwatch_event_target" "this" {
  region    = var.region
  rule      = aws_cloudwatch_event_rule.this.name
  target_id = "Dovetail"
  arn       = local.by_sqs ? aws_sqs_queue.this[0].arn : aws_sns_topic.this[0].arn

  retry_policy {
    maximum_event_age_in_seconds = module.documents.zonal_retry.age
    maximum_retry_attempts       = module.documents.zonal_retry.attempts
  }

  dead_letter_config {
    arn = aws_sqs_queue.letters.arn
  }
}

# The ledger

resource "aws_dynamodb_table" "this" {
  count = var.enable_dynamodb ? 1 : 0

  region       = var.region
  name         = local.name
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }

  tags = var.tags
}

# Identity

data "aws_iam_policy_document" "trust" {
  dynamic "statement" {
    for_each = local.irsa ? [] : [1]

    content {
      sid     = "PodIdentity"
      actions = ["sts:AssumeRole", "sts:TagSession"]

      principals {
        type        = "Service"
        identifiers = ["pods.eks.amazonaws.com"]
      }
    }
  }

  dynamic "statement" {
    for_each = local.irsa ? [var.oidc_provider_arn] : []

    content {
      sid     = "Irsa"
      actions = ["sts:AssumeRoleWithWebIdentity"]

      principals {
        type        = "Federated"
        identifiers = [statement.value]
      }

      condition {
        test     = "StringEquals"
        variable = "${replace(statement.value, "/^.*oidc-provider\\//", "")}:sub"
        values   = ["system:serviceaccount:${var.namespace}:${var.service_account}"]
      }

      condition {
        test     = "StringEquals"
        variable = "${replace(statement.value, "/^.*oidc-provider\\//", "")}:aud"
        values   = ["sts.amazonaws.com"]
      }
    }
  }
}

data "aws_iam_policy_document" "this" {
  source_policy_documents = concat(
    [module.documents.zonal_policies["policy"], module.documents.zonal_policies[local.by_sqs ? "sqsPolicy" : "snsPolicy"]],
    var.enable_dynamodb ? [module.documents.zonal_policies["tablePolicy"]] : [],
    var.enable_observer ? [module.documents.zonal_policies["observerPolicy"]] : [],
  )
}

resource "aws_iam_role" "this" {
  count = var.create_iam_role ? 1 : 0

  name                 = local.name
  assume_role_policy   = data.aws_iam_policy_document.trust.json
  permissions_boundary = var.permissions_boundary

  tags = var.tags
}

# Where the controller has a role already, it is given the policy instead.
resource "aws_iam_role_policy" "this" {
  name   = "zonal-shift"
  role   = var.create_iam_role ? aws_iam_role.this[0].name : var.iam_role_name
  policy = data.aws_iam_policy_document.this.json
}

resource "aws_eks_pod_identity_association" "this" {
  count = var.create_iam_role && !local.irsa ? 1 : 0

  region          = var.region
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.this[0].arn

  tags = var.tags
}

resource "aws_iam_policy" "operator" {
  name        = "DovetailZonalShiftOperator-${var.cluster_name}"
  description = "Starts, changes and ends zonal shifts of ${var.cluster_name}"
  policy      = module.documents.zonal_policies["operatorPolicy"]

  tags = var.tags
}

# Autoshift. Only the cluster's own resource can switch zonal shift on; here it is looked whether someone has.

check "zonal_shift_is_on" {
  data "aws_eks_cluster" "this" {
    region = var.region
    name   = var.cluster_name
  }

  assert {
    condition     = try(data.aws_eks_cluster.this.zonal_shift_config[0].enabled, false)
    error_message = "Zonal shift is off for ${var.cluster_name}, so ARC does not know it: set zonal_shift_config of the cluster to the output of that name."
  }
}

resource "aws_arczonalshift_zonal_autoshift_configuration" "this" {
  count = var.enable_autoshift ? 1 : 0

  region                 = var.region
  resource_arn           = local.cluster_arn
  zonal_autoshift_status = "ENABLED"

  outcome_alarms {
    alarm_identifier = var.practice_run.outcome_alarm_arn
    type             = "CLOUDWATCH"
  }

  # What is empty is not said: it would be said again with every plan.
  blocked_windows = length(var.practice_run.blocked_windows) > 0 ? var.practice_run.blocked_windows : null
  blocked_dates   = length(var.practice_run.blocked_dates) > 0 ? var.practice_run.blocked_dates : null

  lifecycle {
    precondition {
      condition     = var.practice_run.outcome_alarm_arn != null
      error_message = "enable_autoshift needs practice_run.outcome_alarm_arn, the alarm that ends bad practice runs."
    }
  }
}

resource "aws_arczonalshift_autoshift_observer_notification_status" "this" {
  count = var.enable_observer ? 1 : 0

  region = var.region
  status = "ENABLED"
}
