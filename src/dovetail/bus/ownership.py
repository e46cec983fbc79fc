"""Whose instance is it? Tags, in order of trust. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["FALLBACK_TAGS", "TAGS", "owners", "tag_keys"]

TAGS = ("eks:eks-cluster-name", "aws:eks:cluster-name", "kubernetes.io/cluster/*")
# Asked only when none of the configured tags says anything.
FALLBACK_TAGS = ("karpenter.sh/managed-by", "alpha.eksctl.io/cluster-name")
OWNED, SHARED = "owned", "shared"


def owners(tags: Mapping[str, str], keys: Sequence[str] = TAGS) -> tuple[str, ...]:
    """The clusters an instance belongs to: usually one, none for a stranger.

    The most trusted tag decides. Several clusters that each call the instance their own all hear of it: they
    ignore what is not theirs, and a warning that reaches too many is better than one that reaches none.
    """
    owned = _prefixed(tags, keys, OWNED)
    first = _first(tags, keys)
    if len(owned) > 1:
        return tuple(dict.fromkeys([*first, *owned]))
    return first


def _first(tags: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    for key in (*keys, *FALLBACK_TAGS):
        if key.endswith("*"):
            found = _under(tags, key[:-1], OWNED) or _under(tags, key[:-1], SHARED)
        else:
            found = [tags[key]] if tags.get(key) else []
        if found:
            return (found[0],)
    return ()


def _prefixed(tags: Mapping[str, str], keys: Sequence[str], value: str) -> list[str]:
    return [name for key in keys if key.endswith("*") for name in _under(tags, key[:-1], value)]


def _under(tags: Mapping[str, str], prefix: str, value: str) -> list[str]:
    return sorted(
        key[len(prefix) :]
        for key, told in tags.items()
        if told == value and key.startswith(prefix) and len(key) > len(prefix)
    )


def tag_keys(keys: Sequence[str] = TAGS) -> list[str]:
    """The tag keys to ask EC2 for when everything of every cluster is wanted."""
    return [*keys, *FALLBACK_TAGS]
