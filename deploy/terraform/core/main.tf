# What Dovetail needs of an account: a role for the controller, one for nodes, a queue of warnings and its rules.
# Policies come from ../policies, whose statements `make iam` writes for every kit from one source.

data "aws_partition" "current" {
  count = var.create ? 1 : 0
}

data "aws_caller_identity" "current" {
  count = var.create ? 1 : 0
}

data "aws_region" "current" {
  count = var.create ? 1 : 0

  region = var.region
}

locals {
  partition  = try(data.aws_partition.current[0].partition, "aws")
  dns_suffix = try(data.aws_partition.current[0].dns_suffix, "amazonaws.com")
  account    = try(data.aws_caller_identity.current[0].account_id, "")
  region     = try(data.aws_region.current[0].region, "")

  queue_name       = coalesce(var.queue_name, "Karpenter-${var.cluster_name}")
  queue_arn        = "arn:${local.partition}:sqs:${local.region}:${local.account}:${local.queue_name}"
  node_role_arn    = var.create_node_iam_role ? try(aws_iam_role.node[0].arn, "") : coalesce(var.node_iam_role_arn, "*")
  create_queue     = var.create && var.enable_spot_termination
  create_role      = var.create && var.create_iam_role
  create_node_role = var.create && var.create_node_iam_role
}

module "policies" {
  source = "../policies"

  partition                 = local.partition
  region                    = local.region
  account                   = local.account
  cluster_name              = var.cluster_name
  node_role_arn             = local.node_role_arn
  queue_arn                 = var.enable_spot_termination ? local.queue_arn : ""
  rule_name_prefix          = var.rule_name_prefix
  decision_log_bucket       = var.decision_log_bucket
  decision_log_prefix       = var.decision_log_prefix
  recording_bucket          = var.recording_bucket
  recording_prefix          = var.recording_prefix
  commitments               = var.commitments
  notification_topic_arns   = var.notification_topic_arns
  notification_bus_arns     = var.notification_bus_arns
  ami_id_ssm_parameter_arns = var.ami_id_ssm_parameter_arns
  more_statements           = [for statement in coalesce(var.iam_policy_statements, []) : jsonencode(statement)]
  more_queue_statements     = [for statement in coalesce(var.queue_policy_statements, {}) : jsonencode(statement)]
}

# The controller's role

data "aws_iam_policy_document" "controller_trust" {
  count = local.create_role ? 1 : 0

  override_policy_documents = var.iam_role_override_assume_policy_documents
  source_policy_documents   = var.iam_role_source_assume_policy_documents

  statement {
    sid     = "PodIdentity"
    actions = ["sts:AssumeRole", "sts:TagSession"]

    principals {
      type        = "Service"
      identifiers = ["pods.eks.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "controller" {
  count = local.create_role ? 1 : 0

  name                 = var.iam_role_use_name_prefix ? null : var.iam_role_name
  name_prefix          = var.iam_role_use_name_prefix ? "${var.iam_role_name}-" : null
  path                 = var.iam_role_path
  description          = var.iam_role_description
  max_session_duration = var.iam_role_max_session_duration
  permissions_boundary = var.iam_role_permissions_boundary_arn
  assume_role_policy   = data.aws_iam_policy_document.controller_trust[0].json

  tags = merge(var.tags, var.iam_role_tags)
}

resource "aws_iam_policy" "controller" {
  count = local.create_role && !var.enable_inline_policy ? 1 : 0

  name        = var.iam_policy_use_name_prefix ? null : var.iam_policy_name
  name_prefix = var.iam_policy_use_name_prefix ? "${var.iam_policy_name}-" : null
  path        = var.iam_policy_path
  description = var.iam_policy_description
  policy      = module.policies.controller_policy

  tags = var.tags
}

resource "aws_iam_role_policy_attachment" "controller" {
  count = local.create_role && !var.enable_inline_policy ? 1 : 0

  role       = aws_iam_role.controller[0].name
  policy_arn = aws_iam_policy.controller[0].arn
}

resource "aws_iam_role_policy" "controller" {
  count = local.create_role && var.enable_inline_policy ? 1 : 0

  name        = var.iam_policy_use_name_prefix ? null : var.iam_policy_name
  name_prefix = var.iam_policy_use_name_prefix ? "${var.iam_policy_name}-" : null
  role        = aws_iam_role.controller[0].name
  policy      = module.policies.controller_policy
}

resource "aws_iam_role_policy_attachment" "controller_additional" {
  for_each = { for key, arn in var.iam_role_policies : key => arn if local.create_role }

  role       = aws_iam_role.controller[0].name
  policy_arn = each.value
}

resource "aws_eks_pod_identity_association" "karpenter" {
  count = local.create_role && var.create_pod_identity_association ? 1 : 0

  region          = var.region
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.controller[0].arn

  tags = var.tags
}

# The queue of warnings, and what fills it

resource "aws_sqs_queue" "this" {
  count = local.create_queue ? 1 : 0

  region                            = var.region
  name                              = local.queue_name
  message_retention_seconds         = module.policies.queue_retention_seconds
  sqs_managed_sse_enabled           = var.queue_kms_master_key_id == null ? var.queue_managed_sse_enabled : null
  kms_master_key_id                 = var.queue_kms_master_key_id
  kms_data_key_reuse_period_seconds = var.queue_kms_data_key_reuse_period_seconds

  tags = var.tags
}

resource "aws_sqs_queue_policy" "this" {
  count = local.create_queue ? 1 : 0

  region    = var.region
  queue_url = aws_sqs_queue.this[0].url
  policy    = module.policies.queue_policy
}

resource "aws_cloudwatch_event_rule" "this" {
  for_each = { for name, rule in module.policies.rules : name => rule if local.create_queue }

  region        = var.region
  name_prefix   = "${var.rule_name_prefix}${each.key}-"
  description   = "${each.value.detailType}, for ${var.cluster_name}"
  event_pattern = jsonencode({ source = [each.value.source], "detail-type" = [each.value.detailType] })

  tags = merge({ ClusterName = var.cluster_name }, var.tags)
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = { for name, rule in module.policies.rules : name => rule if local.create_queue }

  region    = var.region
  rule      = aws_cloudwatch_event_rule.this[each.key].name
  target_id = "KarpenterInterruptionQueueTarget"
  arn       = aws_sqs_queue.this[0].arn
}

# The role of nodes

data "aws_iam_policy_document" "node_trust" {
  count = local.create_node_role ? 1 : 0

  statement {
    sid     = "EKSNodeAssumeRole"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${local.dns_suffix}"]
    }
  }
}

locals {
  node_role_name = coalesce(var.node_iam_role_name, "Karpenter-${var.cluster_name}")
  node_policies = merge(
    {
      AmazonEKSWorkerNodePolicy          = "arn:${local.partition}:iam::aws:policy/AmazonEKSWorkerNodePolicy"
      AmazonEC2ContainerRegistryPullOnly = "arn:${local.partition}:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly"
    },
    var.node_iam_role_attach_cni_policy && var.cluster_ip_family == "ipv4" ? {
      AmazonEKS_CNI_Policy = "arn:${local.partition}:iam::aws:policy/AmazonEKS_CNI_Policy"
    } : {},
    var.node_iam_role_attach_cni_policy && var.cluster_ip_family == "ipv6" ? {
      AmazonEKS_CNI_IPv6_Policy = "arn:${local.partition}:iam::${local.account}:policy/AmazonEKS_CNI_IPv6_Policy"
    } : {},
  )
}

resource "aws_iam_role" "node" {
  count = local.create_node_role ? 1 : 0

  name                  = var.node_iam_role_use_name_prefix ? null : local.node_role_name
  name_prefix           = var.node_iam_role_use_name_prefix ? "${local.node_role_name}-" : null
  path                  = var.node_iam_role_path
  description           = var.node_iam_role_description
  max_session_duration  = var.node_iam_role_max_session_duration
  permissions_boundary  = var.node_iam_role_permissions_boundary
  assume_role_policy    = data.aws_iam_policy_document.node_trust[0].json
  force_detach_policies = true

  tags = merge(var.tags, var.node_iam_role_tags)
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = { for name, arn in local.node_policies : name => arn if local.create_node_role }

  role       = aws_iam_role.node[0].name
  policy_arn = each.value
}

resource "aws_iam_role_policy_attachment" "node_additional" {
  for_each = { for key, arn in var.node_iam_role_additional_policies : key => arn if local.create_node_role }

  role       = aws_iam_role.node[0].name
  policy_arn = each.value
}

resource "aws_eks_access_entry" "node" {
  count = var.create && var.create_access_entry ? 1 : 0

  region        = var.region
  cluster_name  = var.cluster_name
  principal_arn = var.create_node_iam_role ? aws_iam_role.node[0].arn : var.node_iam_role_arn
  type          = var.access_entry_type

  tags = var.tags

  depends_on = [aws_sqs_queue_policy.this]
}

resource "aws_iam_instance_profile" "this" {
  count = var.create && var.create_instance_profile ? 1 : 0

  name        = var.node_iam_role_use_name_prefix ? null : local.node_role_name
  name_prefix = var.node_iam_role_use_name_prefix ? "${local.node_role_name}-" : null
  path        = var.node_iam_role_path
  role        = var.create_node_iam_role ? aws_iam_role.node[0].name : element(split("/", var.node_iam_role_arn), length(split("/", var.node_iam_role_arn)) - 1)

  tags = merge(var.tags, var.node_iam_role_tags)
}
