"""The old name of zonal shift's Lambda entry point. `dovetail.zonal.lambda_entry` is its home."""

from dovetail.logs import get_logger
from dovetail.zonal.lambda_entry import lambda_handler as lambda_handler

get_logger().warning(
    "dovetail.runtime.function.lambda_handler is an old name: "
    "set the function's handler to dovetail.zonal.lambda_entry.lambda_handler"
)
