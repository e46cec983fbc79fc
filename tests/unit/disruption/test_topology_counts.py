"""SparseCounts behaves as the dict it stands for."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.disruption.simulation.topology import SparseCounts

DOMAINS = ("a", "b", "c", "d", "e")


def both(chance: Random) -> tuple[SparseCounts, dict[str, int]]:
    known = {each: 3 for each in DOMAINS if chance.random() < 0.6}
    gone = {each for each in DOMAINS if chance.random() < 0.3}
    counted = {each: chance.randrange(3) for each in DOMAINS if each not in gone and chance.random() < 0.4}
    plain = {each: 0 for each in known if each not in gone} | counted
    return SparseCounts(known, counted, gone), plain


@pytest.mark.parametrize("seed", range(60))
def test_a_tally_is_read_and_written_like_a_dict(seed: int) -> None:
    chance = Random(seed)
    tally, plain = both(chance)
    for _ in range(6):
        assert dict(tally) == dict(tally.items()) == plain
        assert sorted(tally) == sorted(tally.keys()) == sorted(plain)
        assert sorted(tally.values()) == sorted(plain.values())
        assert len(tally) == len(plain)
        assert {"z": 1} | tally == {"z": 1} | plain
        for each in DOMAINS:
            assert (each in tally, tally.get(each), tally.get(each, 7)) == (
                each in plain,
                plain.get(each),
                plain.get(each, 7),
            )
        domain = chance.choice(DOMAINS)
        if chance.random() < 0.5:
            assert tally.setdefault(domain, 0) == plain.setdefault(domain, 0)
        else:
            tally[domain] = plain[domain] = plain.get(domain, 0) + 1
        assert tally[domain] == plain[domain]


def test_a_domain_nobody_knows_is_missed() -> None:
    with pytest.raises(KeyError):
        SparseCounts({"a": 1}, {}, {"a"})["a"]
