# One set of interruption rules for all clusters of an account and region, and the router that knows whose instance it is.
# Queues, rules and policies come from ../documents, which `make iam` writes for every kit from one source.

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {
  region = var.region
}

locals {
  lanes   = ["urgent", "bulk"]
  lambda  = var.mode == "lambda"
  queues  = module.documents.bus_queues
  rules   = { for name, rule in module.documents.bus_rules : name => rule if rule.optional == "" || contains(var.optional_kinds, rule.optional) }
  readers = [for account in var.accounts : account.role_arn if account.role_arn != null]
  own     = data.aws_caller_identity.current.account_id
  # As interruption-bus-spoke names the role its rules write with.
  writers = [
    for account in var.accounts : coalesce(
      account.writer_role_arn,
      "arn:${data.aws_partition.current.partition}:iam::${account.id}:role/${var.name}-${data.aws_region.current.region}-writer",
    ) if account.id != local.own
  ]
  # Events of accounts that are not named here are parked.
  accounts = concat(
    contains(var.accounts[*].id, local.own) ? [] : [{ id = local.own, role_arn = null, external_id = null, writer_role_arn = null, writer_role_id = null }],
    var.accounts,
  )
  environment = merge(
    {
      DOVETAIL_BUS_MODE              = var.mode
      DOVETAIL_BUS_REGION            = data.aws_region.current.region
      DOVETAIL_BUS_REGISTRY_DISCOVER = "true"
      DOVETAIL_BUS_DESTINATIONS = jsonencode([for each in var.destinations : {
        for key, value in { account = each.account, cluster = each.cluster, queueUrl = each.queue_url, rebalance = each.rebalance } : key => value if value != null
      }])
      DOVETAIL_BUS_OPTIONAL_KINDS = jsonencode([for kind in var.optional_kinds : kind if kind != "canary"])
      DOVETAIL_BUS_ACCOUNTS = jsonencode([for each in local.accounts : {
        for key, value in { id = each.id, roleArn = each.role_arn, externalId = each.external_id, senderId = each.writer_role_id } : key => value if value != null
      }])
    },
    { for lane in keys(module.documents.bus_queues) : "DOVETAIL_BUS_QUEUES_${upper(lane)}" => "${var.name}-${lane}" },
    var.create_registry ? { DOVETAIL_BUS_REGISTRY_DYNAMODB = aws_dynamodb_table.registry[0].name } : {},
    var.environment,
  )
}

# The table is told by its name: what the documents hold has to be known before anything is made.
module "documents" {
  source = "../documents"

  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region
  account   = local.own
  name      = var.name
  # By name, for the same reason.
  replay_role_arn = coalesce(var.replay_role_arn, "arn:${data.aws_partition.current.partition}:iam::${local.own}:role/${var.name}-replay")

  table_arn = "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${local.own}:table/${var.name}-registry"
}

# Queues

resource "aws_sqs_queue" "letters" {
  for_each = { for lane in ["park", "dlq"] : lane => local.queues[lane] }

  region                    = var.region
  name                      = "${var.name}-${each.key}"
  message_retention_seconds = each.value.retention
  sqs_managed_sse_enabled   = true

  tags = var.tags
}

resource "aws_sqs_queue" "lane" {
  for_each = { for lane in local.lanes : lane => local.queues[lane] }

  region                     = var.region
  name                       = "${var.name}-${each.key}"
  visibility_timeout_seconds = each.value.visibility
  message_retention_seconds  = each.value.retention
  receive_wait_time_seconds  = each.value.wait
  sqs_managed_sse_enabled    = true
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.letters["dlq"].arn
    maxReceiveCount     = each.value.receives
  })

  tags = var.tags
}

data "aws_iam_policy_document" "queue" {
  source_policy_documents = [module.documents.bus_policies["queuePolicy"]]

  dynamic "statement" {
    for_each = length(local.writers) > 0 ? [local.writers] : []

    content {
      sid       = "WriteFromSpokes"
      actions   = ["sqs:SendMessage"]
      resources = [for lane in local.lanes : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${local.own}:${var.name}-${lane}"]

      principals {
        type        = "*"
        identifiers = ["*"]
      }

      # The one role of each spoke, and no other principal of its account or organization.
      condition {
        test     = "ArnEquals"
        variable = "aws:PrincipalArn"
        values   = statement.value
      }

      dynamic "condition" {
        for_each = var.organization_id == null ? [] : [var.organization_id]

        content {
          test     = "StringEquals"
          variable = "aws:PrincipalOrgID"
          values   = [condition.value]
        }
      }
    }
  }
}

resource "aws_sqs_queue_policy" "this" {
  for_each = merge(aws_sqs_queue.lane, aws_sqs_queue.letters)

  region    = var.region
  queue_url = each.value.url
  policy    = data.aws_iam_policy_document.queue.json
}

# Rules

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
  target_id = "Router"
  arn       = aws_sqs_queue.lane[each.value.lane].arn

  retry_policy {
    maximum_event_age_in_seconds = module.documents.bus_retry.age
    maximum_retry_attempts       = module.documents.bus_retry.attempts
  }

  dead_letter_config {
    arn = aws_sqs_queue.letters["dlq"].arn
  }
}

# The router

data "aws_iam_policy_document" "trust" {
  statement {
    actions = local.lambda ? ["sts:AssumeRole"] : ["sts:AssumeRole", "sts:TagSession"]

    principals {
      type        = "Service"
      identifiers = [local.lambda ? "lambda.amazonaws.com" : "pods.eks.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "router" {
  source_policy_documents = concat(
    [module.documents.bus_policies["routerPolicy"], module.documents.bus_policies["discoveryPolicy"]],
    var.create_registry ? [module.documents.bus_policies["tablePolicy"]] : [],
    contains(var.optional_kinds, "canary") ? [module.documents.bus_policies["canaryPolicy"]] : [],
  )

  dynamic "statement" {
    for_each = length(local.readers) > 0 ? [local.readers] : []

    content {
      sid       = "AllowReaderRoles"
      actions   = ["sts:AssumeRole"]
      resources = statement.value
    }
  }
}

resource "aws_iam_role" "router" {
  name                 = "${var.name}-${data.aws_region.current.region}-router"
  assume_role_policy   = data.aws_iam_policy_document.trust.json
  permissions_boundary = var.permissions_boundary

  tags = var.tags
}

resource "aws_iam_role_policy" "router" {
  name   = "router"
  role   = aws_iam_role.router.name
  policy = data.aws_iam_policy_document.router.json
}

# Whoever replays parked events and dead letters needs this, and to be the role that replay_role_arn names.
resource "aws_iam_policy" "replay" {
  name        = "${var.name}-${data.aws_region.current.region}-replay"
  description = "Gives parked events and dead letters of the interruption bus another chance"
  policy      = module.documents.bus_policies["replayPolicy"]

  tags = var.tags
}

resource "aws_iam_role_policy_attachment" "logs" {
  count = local.lambda ? 1 : 0

  role       = aws_iam_role.router.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}

resource "aws_cloudwatch_log_group" "router" {
  for_each = local.lambda ? toset(local.lanes) : toset([])

  region            = var.region
  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention_days

  tags = var.tags
}

resource "aws_lambda_function" "router" {
  for_each = { for lane, function in module.documents.bus_functions : lane => function if local.lambda }

  region                         = var.region
  function_name                  = "${var.name}-${each.key}"
  role                           = aws_iam_role.router.arn
  filename                       = var.package
  source_code_hash               = filebase64sha256(var.package)
  handler                        = module.documents.bus_runtime.handler
  runtime                        = module.documents.bus_runtime.runtime
  architectures                  = [module.documents.bus_runtime.architecture]
  memory_size                    = module.documents.bus_runtime.memory
  timeout                        = each.value.timeout
  reserved_concurrent_executions = var.reserved_concurrency

  environment {
    variables = local.environment
  }

  tags = var.tags

  depends_on = [aws_cloudwatch_log_group.router, aws_iam_role_policy.router]
}

resource "aws_lambda_event_source_mapping" "router" {
  for_each = { for lane, function in module.documents.bus_functions : lane => function if local.lambda }

  region                             = var.region
  event_source_arn                   = aws_sqs_queue.lane[each.key].arn
  function_name                      = aws_lambda_function.router[each.key].arn
  batch_size                         = each.value.batch
  maximum_batching_window_in_seconds = each.value.window
  function_response_types            = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = each.value.concurrency
  }
}

resource "aws_eks_pod_identity_association" "router" {
  count = local.lambda ? 0 : 1

  region          = var.region
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.router.arn

  tags = var.tags

  lifecycle {
    precondition {
      condition     = var.cluster_name != null
      error_message = "mode is daemon, so say which cluster the router runs in: set cluster_name."
    }
  }
}

# The registry, and what is watched

resource "aws_dynamodb_table" "registry" {
  count = var.create_registry ? 1 : 0

  region       = var.region
  name         = "${var.name}-registry"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"

  attribute {
    name = "pk"
    type = "S"
  }

  server_side_encryption {
    enabled = true
  }

  tags = var.tags
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = module.documents.bus_alarms

  region              = var.region
  alarm_name          = "${var.name}-${each.key}"
  namespace           = "AWS/SQS"
  metric_name         = each.value.metric
  dimensions          = { QueueName = "${var.name}-${each.value.queue}" }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  threshold           = each.value.over
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]

  tags = var.tags
}

resource "aws_cloudwatch_dashboard" "this" {
  count = var.create_dashboard ? 1 : 0

  dashboard_name = var.name
  dashboard_body = module.documents.bus_dashboard
}
