module "zonal_shift" {
  source = "../.."

  cluster_name    = "shop"
  create_iam_role = false
  iam_role_name   = "KarpenterController-shop"
}
