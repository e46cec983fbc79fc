"""The old name of zonal shift's Lambda entry point. `dovetail.zonal.lambda_entry` is its home."""

import logging

from dovetail.zonal.lambda_entry import lambda_handler as lambda_handler

logging.getLogger(__name__).warning(
    "dovetail.runtime.function.lambda_handler is an old name: "
    "set the function's handler to dovetail.zonal.lambda_entry.lambda_handler"
)
