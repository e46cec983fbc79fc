"""The fields of the kubelet's own configuration (kubelet.config.k8s.io/v1beta1), and the type of each.

Written from the kubelet's reference documentation. A nested table is an object, a list of one shape is a
list of that shape, and `Mapped` is a map of names to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.settings import durations

__all__ = ["FIELDS", "mistakes"]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A map of names to one shape."""

    of: Shape


Shape = str | Mapping[str, Any] | list[Any] | Mapped

_STRING, _BOOL, _INT32, _INT64, _NUMBER = "string", "bool", "int32", "int64", "number"
_DURATION, _QUANTITY = "duration", "quantity"
_STRINGS: Final[list[Any]] = [_STRING]
_TEXTS = Mapped(_STRING)
_BUFFERED: Final = {"splitStream": _BOOL, "infoBufferSize": _QUANTITY}


def _each(shape: Shape, names: str) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


FIELDS: Final[Mapping[str, Shape]] = {
    **_each(
        _STRING,
        "kind apiVersion staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile "
        "tlsMinVersion healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot cgroupDriver "
        "cpuManagerPolicy memoryManagerPolicy topologyManagerPolicy topologyManagerScope hairpinMode podCIDR "
        "resolvConf contentType containerLogMaxSize configMapAndSecretChangeDetectionStrategy "
        "reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup "
        "volumePluginDir providerID containerRuntimeEndpoint imageServiceEndpoint "
        "imagePullCredentialsVerificationPolicy",
    ),
    **_each(
        _BOOL,
        "enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers "
        "enableContentionProfiling cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota "
        "serializeImagePulls mergeDefaultEvictionSettings enableControllerAttachDetach protectKernelDefaults "
        "makeIPTablesUtilChains failSwapOn kernelMemcgNotification enableSystemLogHandler "
        "enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault registerNode "
        "localStorageCapacityIsolation failCgroupV1",
    ),
    **_each(
        _INT32,
        "port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj "
        "nodeLeaseDurationSeconds imageGCHighThresholdPercent imageGCLowThresholdPercent maxPods "
        "nodeStatusMaxImages kubeAPIQPS kubeAPIBurst maxParallelImagePulls evictionMaxPodGracePeriod "
        "podsPerCore iptablesMasqueradeBit iptablesDropBit containerLogMaxFiles containerLogMaxWorkers",
    ),
    **_each(_INT64, "podPidsLimit maxOpenFiles"),
    **_each(
        _DURATION,
        "syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout "
        "nodeStatusUpdateFrequency nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge "
        "volumeStatsAggPeriod cpuManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod "
        "evictionPressureTransitionPeriod containerLogMonitorInterval shutdownGracePeriod "
        "shutdownGracePeriodCriticalPods",
    ),
    **_each(
        _STRINGS,
        "tlsCipherSuites clusterDNS enforceNodeAllocatable allowedUnsafeSysctls "
        "preloadedImagesVerificationAllowlist",
    ),
    **_each(
        _TEXTS,
        "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft "
        "evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved",
    ),
    "staticPodURLHeader": Mapped(_STRINGS),
    "featureGates": Mapped(_BOOL),
    "memoryThrottlingFactor": _NUMBER,
    "tlsCurvePreferences": [_INT32],
    "authentication": {
        "x509": {"clientCAFile": _STRING},
        "webhook": {"enabled": _BOOL, "cacheTTL": _DURATION},
        "anonymous": {"enabled": _BOOL},
    },
    "authorization": {
        "mode": _STRING,
        "webhook": {"cacheAuthorizedTTL": _DURATION, "cacheUnauthorizedTTL": _DURATION},
    },
    "memorySwap": {"swapBehavior": _STRING},
    "logging": {
        "format": _STRING,
        "flushFrequency": "period",
        "verbosity": _INT64,
        "vmodule": [{"filePattern": _STRING, "verbosity": _INT64}],
        "options": {"text": _BUFFERED, "json": _BUFFERED},
    },
    "shutdownGracePeriodByPodPriority": [{"priority": _INT32, "shutdownGracePeriodSeconds": _INT64}],
    "crashLoopBackOff": {"maxContainerRestartPeriod": _DURATION},
    "reservedMemory": [{"numaNode": _INT32, "limits": Mapped(_QUANTITY)}],
    "registerWithTaints": [{"key": _STRING, "value": _STRING, "effect": _STRING, "timeAdded": _STRING}],
    "tracing": {"endpoint": _STRING, "samplingRatePerMillion": _INT32},
    "userNamespaces": {"idsPerPod": _INT64},
}


def mistakes(value: Any, shape: Shape = FIELDS, path: str = "") -> Iterator[str]:
    """What of a configuration the kubelet would not decode: unknown fields and wrong types, at any depth."""
    if value is None:
        return
    if isinstance(shape, str):
        if not _fits(value, shape):
            yield f"{path} must be {_WORDS[shape]}, not {_shown(value)}"
    elif isinstance(shape, list):
        if not isinstance(value, list | tuple):
            yield f"{path} must be a list, not {_shown(value)}"
            return
        for at, item in enumerate(value):
            yield from mistakes(item, shape[0], f"{path}[{at}]")
    elif not isinstance(value, Mapping):
        yield f"{path or 'kubelet'} must be an object, not {_shown(value)}"
    elif isinstance(shape, Mapped):
        for name, item in value.items():
            yield from mistakes(item, shape.of, f"{path}[{name}]")
    else:
        yield from _object_mistakes(value, shape, path)


def _object_mistakes(value: Mapping[str, Any], shape: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if name in shape:
            yield from mistakes(item, shape[name], inner)
        else:
            yield f"{inner} is no field of the kubelet's configuration"


_WORDS: Final = {
    _STRING: "a text",
    _BOOL: "true or false",
    _INT32: "a whole number",
    _INT64: "a whole number",
    _NUMBER: "a number",
    _DURATION: "a duration such as 10s",
    _QUANTITY: "an amount such as 10Mi",
    "period": "a duration such as 10s",
}


def _fits(value: Any, shape: str) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match shape:
        case "bool":
            return isinstance(value, bool)
        case "int32":
            return whole and -(1 << 31) <= value < 1 << 31
        case "int64":
            return whole and -(1 << 63) <= value < 1 << 63
        case "number":
            return whole or isinstance(value, float)
        case "duration":
            return isinstance(value, str) and _is_duration(value)
        case "period":
            return whole or (isinstance(value, str) and _is_duration(value))
        case "quantity":
            return whole or (isinstance(value, str) and _is_quantity(value))
    return isinstance(value, str)


def _is_duration(text: str) -> bool:
    try:
        durations.nanoseconds(text)
    except ValueError:
        return False
    return True


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except BadQuantity:
        return False
    return True


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
