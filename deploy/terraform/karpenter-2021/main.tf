# The module of 2021 around today's controller: its inputs, outputs and resources by the names they had then, including
# the misspelt ones. What came later is behind switches that are off.

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {}

data "aws_eks_cluster" "cluster" {
  name = var.cluster_name
}

locals {
  partition = data.aws_partition.current.partition
  account   = data.aws_caller_identity.current.account_id
  endpoint  = var.cluster_endpoint == "" ? data.aws_eks_cluster.cluster.endpoint : var.cluster_endpoint
  issuer    = replace(var.provider_url == "" ? data.aws_eks_cluster.cluster.identity[0].oidc[0].issuer : var.provider_url, "https://", "")
  worker    = var.worker_iam_role_name
  # An empty boundary means none, as it did then.
  boundary = var.permissions_boundary == "" ? null : var.permissions_boundary
  path     = var.iam_path == "" ? "/" : var.iam_path
  chart    = coalesce(var.helm_chart, "${path.module}/../../helm/dovetail")
  # Told by its name, so that a plan can show the release before the role is there.
  role_name = "karpenter-controller-${var.cluster_name}"
  role_arn  = "arn:${local.partition}:iam::${local.account}:role${local.path}${local.role_name}"
}

module "policies" {
  source = "../policies"

  partition     = local.partition
  region        = data.aws_region.current.region
  account       = local.account
  cluster_name  = var.cluster_name
  node_role_arn = "arn:${local.partition}:iam::${local.account}:role${local.path}${local.worker}"
  queue_arn     = var.create_queue ? "arn:${local.partition}:sqs:${data.aws_region.current.region}:${local.account}:${var.cluster_name}" : ""
}

# The controller's role, by IRSA

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]

    principals {
      type        = "Federated"
      identifiers = ["arn:${local.partition}:iam::${local.account}:oidc-provider/${local.issuer}"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = ["system:serviceaccount:${var.helm_namespace}:karpenter"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "karpenter" {
  name                 = local.role_name
  path                 = local.path
  permissions_boundary = local.boundary
  assume_role_policy   = data.aws_iam_policy_document.trust.json
}

resource "aws_iam_policy" "karpenter_contoller" {
  name   = "karpenter-policy-${var.cluster_name}"
  path   = local.path
  policy = module.policies.controller_policy
}

resource "aws_iam_role_policy_attachment" "karpenter_contoller_policy_attachment" {
  role       = aws_iam_role.karpenter.name
  policy_arn = aws_iam_policy.karpenter_contoller.arn
}

# Nodes

data "aws_iam_policy_document" "ssm" {
  statement {
    actions = [
      "ssm:DescribeAssociation",
      "ssm:GetDeployablePatchSnapshotForInstance",
      "ssm:GetDocument",
      "ssm:DescribeDocument",
      "ssm:GetManifest",
      "ssm:ListAssociations",
      "ssm:ListInstanceAssociations",
      "ssm:PutInventory",
      "ssm:PutComplianceItems",
      "ssm:PutConfigurePackageResult",
      "ssm:UpdateAssociationStatus",
      "ssm:UpdateInstanceAssociationStatus",
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }
}

resource "aws_iam_policy" "ssm_managed_instance" {
  name   = "karpenter-ssm-policy-${var.cluster_name}"
  path   = local.path
  policy = data.aws_iam_policy_document.ssm.json
}

resource "aws_iam_role_policy_attachment" "karpenter_ssm_policy" {
  role       = local.worker
  policy_arn = aws_iam_policy.ssm_managed_instance.arn
}

resource "aws_iam_instance_profile" "karpenter" {
  name = "KarpenterNodeInstanceProfile-${var.cluster_name}"
  path = local.path
  role = local.worker
}

# The release

resource "helm_release" "karpenter" {
  name             = var.helm_name
  namespace        = var.helm_namespace
  create_namespace = var.helm_create_namespace
  chart            = local.chart

  values = [jsonencode({
    serviceAccount = {
      name        = "karpenter"
      annotations = { "eks.amazonaws.com/role-arn" = local.role_arn }
    }
    settings = merge(
      { clusterName = var.cluster_name, clusterEndpoint = local.endpoint },
      var.create_queue ? { interruptionQueue = aws_sqs_queue.this[0].name } : {},
    )
  })]

  depends_on = [aws_iam_role_policy_attachment.karpenter_contoller_policy_attachment]
}

# Warnings, which there were none of in 2021

resource "aws_sqs_queue" "this" {
  count = var.create_queue ? 1 : 0

  name                      = var.cluster_name
  message_retention_seconds = module.policies.queue_retention_seconds
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "this" {
  count = var.create_queue ? 1 : 0

  queue_url = aws_sqs_queue.this[0].url
  policy    = module.policies.queue_policy
}

resource "aws_cloudwatch_event_rule" "this" {
  for_each = var.create_queue ? module.policies.rules : {}

  name_prefix   = "Karpenter${each.key}-"
  event_pattern = jsonencode({ source = [each.value.source], "detail-type" = [each.value.detailType] })
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = aws_cloudwatch_event_rule.this

  rule      = each.value.name
  target_id = "KarpenterInterruptionQueueTarget"
  arn       = aws_sqs_queue.this[0].arn
}
