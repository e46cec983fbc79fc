"""The Lambda entry point of zonal shift answers to its new name, and to the one it was deployed under."""

from __future__ import annotations

import logging
import sys
from importlib import import_module

import pytest

from dovetail.zonal.lambda_entry import lambda_handler


def test_the_old_name_is_the_same_handler_and_warns_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "dovetail.runtime.function", raising=False)
    with caplog.at_level(logging.WARNING):
        older = import_module("dovetail.runtime.function")
        again = import_module("dovetail.runtime.function")
    assert older.lambda_handler is again.lambda_handler is lambda_handler
    (line,) = [each.getMessage() for each in caplog.records if "is an old name" in each.getMessage()]
    assert "set the function's handler to dovetail.zonal.lambda_entry.lambda_handler" in line
