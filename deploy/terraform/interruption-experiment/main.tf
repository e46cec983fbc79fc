# Interrupts some spot machines of a cluster on purpose, to see that warnings find their way in time.
# The action, the mark of machines and the role's policies come from ../documents.

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}

data "aws_region" "current" {
  region = var.region
}

module "documents" {
  source = "../documents"

  partition    = data.aws_partition.current.partition
  region       = data.aws_region.current.region
  account      = data.aws_caller_identity.current.account_id
  cluster_name = var.cluster_name
}

resource "aws_iam_role" "this" {
  name                 = "dovetail-interruptions-${data.aws_region.current.region}-${var.cluster_name}"
  assume_role_policy   = module.documents.experiment_policies["trust"]
  permissions_boundary = var.permissions_boundary

  tags = var.tags
}

resource "aws_iam_role_policy" "this" {
  name   = "interrupt"
  role   = aws_iam_role.this.name
  policy = module.documents.experiment_policies["policy"]
}

resource "aws_fis_experiment_template" "this" {
  region      = var.region
  description = "Interrupts spot machines of ${var.cluster_name}"
  role_arn    = aws_iam_role.this.arn

  stop_condition {
    source = var.stop_alarm_arn == null ? "none" : "aws:cloudwatch:alarm"
    value  = var.stop_alarm_arn
  }

  target {
    name           = "machines"
    resource_type  = module.documents.experiment.kind
    selection_mode = "COUNT(${var.instances})"

    resource_tag {
      key   = module.documents.experiment.mark
      value = var.cluster_name
    }

    filter {
      path   = "State.Name"
      values = ["running"]
    }
  }

  action {
    name      = "interrupt"
    action_id = module.documents.experiment.action

    parameter {
      key   = "durationBeforeInterruption"
      value = var.notice
    }

    target {
      key   = "SpotInstances"
      value = "machines"
    }
  }

  tags = merge(var.tags, { Name = "dovetail-interruptions-${var.cluster_name}" })

  depends_on = [aws_iam_role_policy.this]
}
