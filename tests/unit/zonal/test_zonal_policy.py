"""The policy of zonal shift: a ConfigMap's fields, and the settings they once were, which still work."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from dovetail.api.meta import ObjectMeta
from dovetail.errors import Gone, Misconfigured, NotAuthorized
from dovetail.settings import POLICY_FIELDS, SETTINGS, PolicyField, Settings, examine_settings, read_settings
from dovetail.zonal.ingest.sns_process import flags_of
from dovetail.zonal.options import POLICY_OPTIONS, ZonalOptions, from_settings
from dovetail.zonal.policy_map import ConfigMap, ShiftPolicyMap, merge_policy, read_policy

# For each field a text that is not its default.
OTHER = {
    "sns-auto-subscribe": "true",
    "adopt-orphans": "true",
    "allow-signature-v1": "true",
    "auto-mode": "Clone",
    "clone-retention": "24h",
    "debounce": "5s",
    "drift-guard": "Budget",
    "edit-strategy": "RemoveFromIn",
    "honour-unapplied": "true",
    "min-healthy-zones": "2",
    "min-hold": "1m",
    "node-enforce": "true",
    "node-scope": "Managed",
    "observer": "true",
    "only-zone-policy": "Leave",
    "poll-interval": "1m",
    "poll-interval-active": "5s",
    "prescale": "true",
    "rebalance": "Gradual",
    "rehearsal": "@weekly",
    "restore-batch": "50%",
    "restore-fast": "true",
    "restore-interval": "1m",
    "sweep-legacy": "true",
    "sns-ca-file": "/etc/roots.pem",
    "trust-events": "false",
}
NAMED = (
    "--cluster-name=test",
    "--enable-zonal-shift=true",
    "--feature-gates=CapacityBuffer=true",
    "--zonal-shift-topic-arn=arn:aws:sns:us-west-2:111122223333:shifts",
    "--zonal-shift-endpoint-url=https://example.test",
)
EVERY = pytest.mark.parametrize("field", POLICY_FIELDS, ids=lambda field: field.key)
# A path may be any text, so no value of it is bad; a rehearsal is read in full.
REFUSING = [each for each in POLICY_FIELDS if each.kind.allowed != "any text" or each.key == "rehearsal"]
LIVE = pytest.mark.parametrize(
    "field", [each for each in POLICY_FIELDS if each.live], ids=lambda field: field.key
)


def settings_of(*flags: str, **environment: str) -> Settings:
    return read_settings((*NAMED, *flags), environment, provider="aws")


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="policy", namespace="kube-system"), data=data)


def effects(settings: Settings) -> tuple[ZonalOptions, list[str], str]:
    """All that is made of settings: options, what the HTTPS endpoint is told, what disruption asks."""
    return from_settings(settings), flags_of(settings), settings.zonal_policy.rebalance


class Events:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def publish_event(self, obj: Any, reason: str, note: str, **_: Any) -> None:
        assert (obj.name, reason) == ("policy", "ZonalShiftMisconfigured")
        self.notes.append(note)


class Followed:
    """A map that is followed by a process that was started with these settings."""

    def __init__(self, settings: Settings) -> None:
        self.events, self.options = Events(), from_settings(settings)
        self._map = ShiftPolicyMap(settings, self.options, self.events, self._apply)
        self._last: ConfigMap | None = None

    def _apply(self, options: ZonalOptions) -> None:
        self.options = options

    def write(self, **data: str) -> ZonalOptions:
        now = config_map(**data)
        self._map.apply_change(self._last, now)
        self._last = now
        return self.options


def test_zonal_shift_has_at_most_fifteen_settings_and_all_of_ours_are_at_most_25() -> None:
    zonal = [each for each in SETTINGS if each.variable.startswith("ZONAL_SHIFT_")]
    ours = {
        "CONSOLIDATE_MANY", "CONSOLIDATION_MAX_PAYBACK", "CONSOLIDATION_MIN_SAVING",
        "CONSOLIDATION_MIN_SAVING_PERCENT", "CONSOLIDATION_REST", "DISRUPTION_RATE", "DRIFT_PAUSE_AFTER",
        "METRICS_DETAIL", "PLANNED_NODE_MAX_PODS", "PLANNER", "SCHEDULER_CONFIG", "ENABLE_DO_NOT_DISRUPT",
    }  # fmt: skip
    assert ours <= {each.variable for each in SETTINGS}
    assert len(zonal) + 1 <= 15
    assert len(zonal) + len(ours) <= 25
    assert OTHER.keys() == {each.key for each in POLICY_FIELDS}
    assert {each.name for each in POLICY_FIELDS if each.live} <= POLICY_OPTIONS.keys()


@EVERY
def test_the_old_variable_and_the_old_flag_still_have_their_effect(field: PolicyField) -> None:
    text = OTHER[field.key]
    by_flag, by_variable = settings_of(f"{field.flag}={text}"), settings_of(**{field.variable: text})
    assert effects(by_flag) == effects(by_variable)
    assert effects(by_flag) != effects(settings_of())
    flag_wins = settings_of(f"{field.flag}={text}", **{field.variable: field.default or "other"})
    assert effects(flag_wins) == effects(by_flag)


@EVERY
def test_an_old_name_is_told_once_with_its_replacement(field: PolicyField) -> None:
    text = OTHER[field.key]
    for used, found in (
        (field.flag, settings_of(f"{field.flag}={text}")),
        (field.variable, settings_of(**{field.variable: text})),
    ):
        (told,) = found.warnings
        assert told.startswith(f'{used} is an old name that still works: write {field.key}: "{text}" into')
    assert settings_of().warnings == ()


@EVERY
def test_the_field_of_the_map_does_what_the_setting_did(field: PolicyField) -> None:
    text = OTHER[field.key]
    before = settings_of(f"{field.flag}={text}")
    assert effects(merge_policy(settings_of(), config_map(**{field.key: text}))) == effects(before)


@EVERY
def test_a_field_of_the_map_wins_over_the_old_setting_and_an_empty_one_does_not(field: PolicyField) -> None:
    old = settings_of(f"{field.flag}={OTHER[field.key]}")
    if field.default:
        merged = merge_policy(old, config_map(**{field.key: field.default}))
        assert effects(merged) == effects(settings_of())
    assert effects(merge_policy(old, config_map(**{field.key: " "}))) == effects(old)
    assert effects(merge_policy(old, config_map())) == effects(old)


@LIVE
def test_a_field_counts_from_the_moment_it_is_written_until_it_is_taken_out(field: PolicyField) -> None:
    text = OTHER[field.key]
    wanted, usual = from_settings(settings_of(f"{field.flag}={text}")), from_settings(settings_of())
    process = Followed(settings_of())
    assert process.write(**{field.key: text}) == wanted
    assert process.write() == usual

    old = Followed(settings_of(f"{field.flag}={text}"))
    assert old.write(**{field.key: field.default}) == usual
    assert old.write() == wanted, "what the old setting says comes back"

    begun = Followed(merge_policy(settings_of(), config_map(**{field.key: text})))
    assert begun.options == wanted
    assert begun.write(**{field.key: text}) == wanted
    assert begun.write() == usual, "also where the process was started with the field"


@pytest.mark.parametrize("field", REFUSING, ids=lambda field: field.key)
def test_a_bad_value_is_told_in_one_sentence_and_changes_nothing(
    field: PolicyField, caplog: pytest.LogCaptureFixture
) -> None:
    bad = "no such\nvalue"
    with caplog.at_level(logging.WARNING):
        merged = merge_policy(settings_of(), config_map(**{field.key: bad}))
    assert effects(merged) == effects(settings_of())
    (problem,) = examine_settings((*NAMED, f"{field.flag}={bad}"), {}, "aws").problems or ("",)
    assert problem.startswith(f'{field.flag} is "no such') or field.key == "rehearsal"
    assert "\n" not in problem
    process = Followed(settings_of())
    assert process.write(**{field.key: bad}) == from_settings(settings_of())
    if field.live:
        (note,) = process.events.notes
        assert note.startswith(f'{field.key} in ConfigMap kube-system/policy is "no such')
        assert f"but must be {field.kind.allowed}" in note


def test_a_field_that_is_read_at_the_start_says_that_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    process = Followed(settings_of())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            process.write(rehearsal="@weekly")
            process.write()
    told = [each for each in caplog.records if "counts from the next start" in each.getMessage()]
    assert len(told) == 1
    assert process.options == from_settings(settings_of())


def test_fields_that_lack_a_setting_are_refused_in_one_sentence() -> None:
    bare = read_settings(NAMED[:2], {}, provider="aws")
    with pytest.raises(Misconfigured, match="policy: SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_END"):
        merge_policy(bare, config_map(**{"sns-auto-subscribe": "true"}))
    with pytest.raises(Misconfigured, match="add CapacityBuffer=true"):
        from_settings(merge_policy(bare, config_map(prescale="true")))


class Maps:
    """A Kubernetes with one ConfigMap, or none."""

    def __init__(self, found: ConfigMap | Exception) -> None:
        self._found, self.asked = found, list[tuple[str, str]]()

    async def get(self, kind: type[ConfigMap], name: str, namespace: str = "") -> ConfigMap:
        self.asked.append((namespace, name))
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


async def test_the_map_is_read_at_the_start_and_nothing_hangs_on_it(caplog: pytest.LogCaptureFixture) -> None:
    named = settings_of("--zonal-shift-config-map=policy")
    maps: Any = Maps(config_map(rehearsal="@weekly"))
    assert (await read_policy(named, maps, "here")).zonal_policy.rehearsal == "@weekly"
    elsewhere = settings_of("--zonal-shift-config-map=there/policy")
    await read_policy(elsewhere, maps, "here")
    assert maps.asked == [("here", "policy"), ("there", "policy")]

    for error in (Gone("no such map"), NotAuthorized("may not get configmaps")):
        broken: Any = Maps(error)
        assert await read_policy(named, broken, "here") == named
    assert "settings alone count" in caplog.text
    unasked: Any = Maps(Gone("never asked"))
    await read_policy(settings_of(), unasked, "here")
    await read_policy(replace(named, enable_zonal_shift=False), unasked, "here")
    assert unasked.asked == []
