"""Qualified names and label values, and what is wrong with one in apimachinery's words.

The words reach people through the ValidationSucceeded condition, where they are part of the contract.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LONGEST_NAME = 63
_LONGEST_SUBDOMAIN = 253


def qualified_name_errors(text: str) -> tuple[str, ...]:
    """Why a text is no qualified name; empty when it is one."""
    parts = text.split("/")
    if len(parts) > 2:
        return (
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    errors = _prefix_errors(parts[0]) if len(parts) == 2 else ()
    return errors + _name_errors(parts[-1])


def label_value_errors(text: str) -> tuple[str, ...]:
    """Why a text is no label value; empty when it is one."""
    errors: tuple[str, ...] = ()
    if _count_bytes(text) > _LONGEST_NAME:
        errors += (f"must be no more than {_LONGEST_NAME} bytes",)
    return errors if _VALUE.fullmatch(text) else (*errors, _VALUE_RULE)


def _prefix_errors(prefix: str) -> tuple[str, ...]:
    if not prefix:
        return ("prefix part must be non-empty",)
    errors: tuple[str, ...] = ()
    if _count_bytes(prefix) > _LONGEST_SUBDOMAIN:
        errors += (f"prefix part must be no more than {_LONGEST_SUBDOMAIN} bytes",)
    return errors if _SUBDOMAIN.fullmatch(prefix) else (*errors, f"prefix part {_SUBDOMAIN_RULE}")


def _name_errors(name: str) -> tuple[str, ...]:
    errors: tuple[str, ...] = ()
    if not name:
        errors += ("name part must be non-empty",)
    elif _count_bytes(name) > _LONGEST_NAME:
        errors += (f"name part must be no more than {_LONGEST_NAME} bytes",)
    return errors if _NAME.fullmatch(name) else (*errors, f"name part {_NAME_RULE}")


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
