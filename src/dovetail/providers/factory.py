"""How the provider of each name is made; what the API has of it stands in `dovetail.api.crds.providers`.

AWS is loaded only when it is asked for: who has simulated machines need not have its SDK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dovetail.api.crds import find_provider_api
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.provider_port import Indexes, MakeProvider, Provider, ProviderContext
from dovetail.errors import Misconfigured
from dovetail.providers.kwok.provider import KwokProvider

__all__ = ["MAKERS", "AwsReach", "ProviderMaker", "choose_provider", "list_provider_indexes"]


@dataclass(frozen=True, slots=True)
class AwsReach:
    """Where AWS is asked: in which region, else as the environment says; a simulated one at its address."""

    region: str = ""
    simulated: str = ""


ANYWHERE = AwsReach()


@dataclass(frozen=True, slots=True)
class ProviderMaker:
    """How a provider is made, and by what its controllers look objects up."""

    choose: Callable[[AwsReach], MakeProvider]
    list_indexes: Callable[[], Indexes] = dict


def _make_aws(reach: AwsReach, given: ProviderContext) -> Provider:
    from dovetail.providers.aws.provider import AwsProvider

    try:
        from dovetail.aws.boto import BotoAws
    except ModuleNotFoundError as error:
        if error.name not in ("boto3", "botocore"):
            raise
        raise Misconfigured(
            "starting the aws provider: boto3 is not installed; run `pip install dovetail[aws]`"
        ) from error
    if reach.simulated:
        aws = BotoAws.for_simulator(reach.simulated, reach.region)
    else:
        aws = BotoAws(region=reach.region)
    return AwsProvider(given, aws, on_close=aws.close)


def _list_aws_indexes() -> Indexes:
    from dovetail.providers.aws.interruption import BY_INSTANCE, instance_of_claim

    return {NodeClaim: {BY_INSTANCE: instance_of_claim}}


MAKERS: dict[str, ProviderMaker] = {
    "aws": ProviderMaker(lambda reach: partial(_make_aws, reach), _list_aws_indexes),
    "kwok": ProviderMaker(lambda reach: KwokProvider),
}


def _find_maker(provider: str) -> ProviderMaker:
    find_provider_api(provider)  # says which names there are
    return MAKERS[provider]


def choose_provider(provider: str, reach: AwsReach = ANYWHERE) -> MakeProvider:
    """What makes the provider of this name."""
    return _find_maker(provider).choose(reach)


def list_provider_indexes(provider: str) -> Indexes:
    """By what the controllers of this provider look objects up, beside what all do."""
    return _find_maker(provider).list_indexes()
