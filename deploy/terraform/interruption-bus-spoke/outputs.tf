output "account" {
  description = "An entry of the hub's accounts, but for external_id"
  value = {
    id       = data.aws_caller_identity.current.account_id
    role_arn = aws_iam_role.reader.arn

    writer_role_arn = aws_iam_role.writer.arn
    writer_role_id  = aws_iam_role.writer.unique_id
  }
}
