"""Query parameters, read strictly enough to catch mistakes and no stricter than a real server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dovetail.sim.kube import status
from dovetail.sim.kube.options import DeleteOptions, WriteOptions, delete_options
from dovetail.sim.kube.schema import Cause

_VALIDATIONS = ("Strict", "Warn", "Ignore")
_NAME_LIMIT = 128


@dataclass(frozen=True, slots=True)
class Parameters:
    """The query of one request."""

    values: Mapping[str, str]

    def text(self, name: str) -> str:
        """A parameter as it is."""
        return self.values.get(name, "")

    def flag(self, name: str) -> bool | None:
        """A parameter that is true or false, or None if it was not given."""
        value = self.values.get(name)
        # Whatever is not plainly false is true; apimachinery reads flags so.
        return None if value is None else value.lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        """A parameter that is a whole number, or None if it was not given."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        sign, digits = (-1, value[1:]) if value[:1] == "-" else (1, value)
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise status.bad_request(f'invalid value "{value}" for {name}: it must be a whole number')
        return sign * int(digits)

    def write(self, verb: str, manager: str, user: str, warnings: list[str]) -> WriteOptions:
        """Options of a write; `manager` is who writes unless the query says so."""
        kind = f"{verb.capitalize()}Options"
        validation = self.text("fieldValidation") or "Warn"
        causes = []
        if validation not in _VALIDATIONS:
            causes.append(_unsupported("fieldValidation", validation, _VALIDATIONS))
        if len(self.text("fieldManager")) > _NAME_LIMIT:
            text = f"Too long: may not be more than {_NAME_LIMIT} bytes"
            causes.append(Cause("fieldManager", "FieldValueTooLong", text))
        if causes:
            raise status.invalid_kind(kind, "meta.k8s.io", "", causes)
        return WriteOptions(
            dry_run=self.dry_run(kind),
            manager=self.text("fieldManager") or manager,
            user=user,
            validation=validation,
            force=bool(self.flag("force")),
            warnings=warnings,
        )

    def dry_run(self, kind: str = "DeleteOptions") -> bool:
        """Whether nothing is to be stored."""
        value = self.text("dryRun")
        if value not in ("", "All"):
            cause = _unsupported("dryRun", value, ("All",))
            raise status.invalid_kind(kind, "meta.k8s.io", "", [cause])
        return value == "All"

    def delete(self, body: Any) -> DeleteOptions:
        """Options of a delete; what the body says wins."""
        if body is not None and not isinstance(body, dict):
            raise status.bad_request("DeleteOptions cannot be decoded: it must be an object")
        options = delete_options(body or {})
        if options.grace is None:
            options = replace(options, grace=self.number("gracePeriodSeconds"))
        if not options.propagation:
            options = replace(options, propagation=self._propagation())
        return replace(options, dry_run=options.dry_run or self.dry_run())

    def _propagation(self) -> str:
        orphan = self.flag("orphanDependents")
        if self.text("propagationPolicy") or orphan is None:
            return self.text("propagationPolicy")
        return "Orphan" if orphan else "Background"


def _unsupported(name: str, value: str, supported: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in supported)
    return Cause(name, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')
