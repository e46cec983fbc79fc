"""What a simulated machine is called and labelled, held to what Karpenter's own kwok provider does."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.providers.kwok.catalog import family_and_size, instance_types
from dovetail.scheduling.requirements import Requirements, values_of


@pytest.mark.parametrize(
    ("name", "family", "size"),
    [
        ("c-4x-amd64-linux", "c", "4"),
        ("m-192x-arm64-windows", "m", "4"),
        ("m5.large", "m5", "large"),
        ("m5.12xlarge", "m5", "12xlarge"),
        ("n1-standard-8", "n1", "4"),
        ("plain", "p", "4"),
    ],
)
def test_the_size_is_the_cpu_count_unless_the_name_is_of_the_form_aws_uses(
    name: str, family: str, size: str
) -> None:
    assert family_and_size(name, "4") == (family, size)


def test_a_pool_that_wants_machines_below_thirty_two_cpus_finds_them_by_size() -> None:
    wanted = Requirements({labels.KWOK_INSTANCE_SIZE: values_of("Lt", ("32",))})

    found = [each for each in instance_types() if each.requirements.compatible(wanted)]

    assert {each.capacity["cpu"].value for each in found} == {1, 2, 4, 8, 16}
