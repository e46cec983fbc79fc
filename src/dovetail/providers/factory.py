"""Which provider is meant by its name: its node class, and how it is made.

AWS is loaded only when it is asked for: who has simulated machines need not have its SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dovetail.api.meta import Object
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.controllers.provider_port import MakeProvider, Provider, ProviderContext
from dovetail.errors import Misconfigured
from dovetail.providers.kwok import KwokProvider

__all__ = ["NODE_CLASSES", "AwsReach", "choose_provider"]

NODE_CLASSES: Mapping[str, type[Object]] = {"kwok": KWOKNodeClass, "aws": EC2NodeClass}


@dataclass(frozen=True, slots=True)
class AwsReach:
    """Where AWS is asked: in which region, else as the environment says; a simulated one at its address."""

    region: str = ""
    simulated: str = ""


ANYWHERE = AwsReach()


def choose_provider(provider: str, reach: AwsReach = ANYWHERE) -> MakeProvider:
    return KwokProvider if provider == "kwok" else partial(_make_aws, reach)


def _make_aws(reach: AwsReach, given: ProviderContext) -> Provider:
    from dovetail.providers.aws import AwsProvider

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
