"""What is wrong with a class's kubelet settings, before any node starts with them.

Settings are looked at as they are written, not as records: a field we do not know must be seen to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from dovetail.api.quantity import BadQuantity, Quantity
from dovetail.settings import durations

__all__ = ["FIELDS", "describe_unsupported", "is_quantity", "list_complaints", "list_mistakes"]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map of names to one shape."""

    of: Shape


Shape = str | Mapping[str, Any] | list[Any] | MapOf

_STRING, _BOOL, _INT32, _INT64, _NUMBER = "string", "bool", "int32", "int64", "number"
_DURATION, _QUANTITY = "duration", "quantity"
_STRINGS: Final[list[Any]] = [_STRING]
_TEXTS = MapOf(_STRING)
_BUFFERED: Final = {"splitStream": _BOOL, "infoBufferSize": _QUANTITY}


def _repeat_shape(shape: Shape, names: str) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


FIELDS: Final[Mapping[str, Shape]] = {
    **_repeat_shape(
        _STRING,
        "kind apiVersion staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile "
        "tlsMinVersion healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot cgroupDriver "
        "cpuManagerPolicy memoryManagerPolicy topologyManagerPolicy topologyManagerScope hairpinMode podCIDR "
        "resolvConf contentType containerLogMaxSize configMapAndSecretChangeDetectionStrategy "
        "reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup "
        "volumePluginDir providerID containerRuntimeEndpoint imageServiceEndpoint "
        "imagePullCredentialsVerificationPolicy",
    ),
    **_repeat_shape(
        _BOOL,
        "enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers "
        "enableContentionProfiling cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota "
        "serializeImagePulls mergeDefaultEvictionSettings enableControllerAttachDetach protectKernelDefaults "
        "makeIPTablesUtilChains failSwapOn kernelMemcgNotification enableSystemLogHandler "
        "enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault registerNode "
        "localStorageCapacityIsolation failCgroupV1",
    ),
    **_repeat_shape(
        _INT32,
        "port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj "
        "nodeLeaseDurationSeconds imageGCHighThresholdPercent imageGCLowThresholdPercent maxPods "
        "nodeStatusMaxImages kubeAPIQPS kubeAPIBurst maxParallelImagePulls evictionMaxPodGracePeriod "
        "podsPerCore iptablesMasqueradeBit iptablesDropBit containerLogMaxFiles containerLogMaxWorkers",
    ),
    **_repeat_shape(_INT64, "podPidsLimit maxOpenFiles"),
    **_repeat_shape(
        _DURATION,
        "syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout "
        "nodeStatusUpdateFrequency nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge "
        "volumeStatsAggPeriod cpuManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod "
        "evictionPressureTransitionPeriod containerLogMonitorInterval shutdownGracePeriod "
        "shutdownGracePeriodCriticalPods",
    ),
    **_repeat_shape(
        _STRINGS,
        "tlsCipherSuites clusterDNS enforceNodeAllocatable allowedUnsafeSysctls "
        "preloadedImagesVerificationAllowlist",
    ),
    **_repeat_shape(
        _TEXTS,
        "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft "
        "evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved",
    ),
    "staticPodURLHeader": MapOf(_STRINGS),
    "featureGates": MapOf(_BOOL),
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
    "reservedMemory": [{"numaNode": _INT32, "limits": MapOf(_QUANTITY)}],
    "registerWithTaints": [{"key": _STRING, "value": _STRING, "effect": _STRING, "timeAdded": _STRING}],
    "tracing": {"endpoint": _STRING, "samplingRatePerMillion": _INT32},
    "userNamespaces": {"idsPerPod": _INT64},
}


def list_mistakes(value: Any, shape: Shape = FIELDS, path: str = "") -> Iterator[str]:
    """What of a configuration the kubelet would not decode: unknown fields and wrong types, at any depth."""
    if value is None:
        return
    if isinstance(shape, str):
        if not _is_of_shape(value, shape):
            yield f"{path} must be {_WORDS[shape]}, not {_describe_value(value)}"
    elif isinstance(shape, list):
        if not isinstance(value, list | tuple):
            yield f"{path} must be a list, not {_describe_value(value)}"
            return
        for at, item in enumerate(value):
            yield from list_mistakes(item, shape[0], f"{path}[{at}]")
    elif not isinstance(value, Mapping):
        yield f"{path or 'kubelet'} must be an object, not {_describe_value(value)}"
    elif isinstance(shape, MapOf):
        for name, item in value.items():
            yield from list_mistakes(item, shape.of, f"{path}[{name}]")
    else:
        yield from _list_object_mistakes(value, shape, path)


def _list_object_mistakes(value: Mapping[str, Any], shape: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if name in shape:
            yield from list_mistakes(item, shape[name], inner)
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


def _is_of_shape(value: Any, shape: str) -> bool:
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
        durations.parse_nanoseconds(text)
    except ValueError:
        return False
    return True


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except BadQuantity:
        return False
    return True


def _describe_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
RESERVED: Final = ("kubeReserved", "systemReserved")
MANAGED: Final = frozenset(
    (
        *RESERVED,
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    )
)
# Their start scripts pass on only what they know; AL2023 takes any field, and Custom is the user's own.
LIMITED_FAMILIES: Final = ("AL2", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")


def list_complaints(kubelet: Mapping[str, Any]) -> tuple[str, ...]:
    """Everything that is wrong with the settings, whatever the family; nothing when they are fine."""
    # An expression for maxPods is a text, and judged elsewhere.
    typed = {**kubelet, "maxPods": 0} if isinstance(kubelet.get("maxPods"), str) else kubelet
    found = list(list_mistakes(typed))
    if kubelet.get("registerWithTaints"):
        found.append("registerWithTaints belongs to the provider; use the taints of the NodePool")
    found += _check_thresholds(kubelet)
    found += _check_grace(kubelet)
    found += _check_reserved(kubelet)
    found += _check_percentages(kubelet)
    found += [
        f"{name} must not be negative"
        for name in ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods")
        if _is_number(number := kubelet.get(name)) and number < 0
    ]
    return tuple(found)


def describe_unsupported(kubelet: Mapping[str, Any], family: str) -> str:
    """Why nodes of a family cannot be started with these settings; empty when they can."""
    if family not in LIMITED_FAMILIES:
        return ""
    found = []
    others = sorted(set(kubelet) - MANAGED)
    if others:
        found.append(f"{family} does not pass on {', '.join(others)}; AL2023 does")
    if family == "Bottlerocket" and kubelet.get("podsPerCore") is not None:
        found.append("Bottlerocket does not know podsPerCore; use maxPods")
    if len(_read_list(kubelet.get("clusterDNS"))) > 1:
        found.append(f"{family} takes one clusterDNS address only")
    return "; ".join(found)


def _check_thresholds(kubelet: Mapping[str, Any]) -> Iterator[str]:
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, amount in _read_texts(kubelet.get(name)).items():
            yield from _check_signal(name, signal)
            if not _is_threshold(amount):
                yield f"{name}[{signal}] must be 0% to 100% or an amount, not {amount!r}"
    for signal, grace in _read_texts(kubelet.get("evictionSoftGracePeriod")).items():
        yield from _check_signal("evictionSoftGracePeriod", signal)
        if not _is_grace(grace):
            yield f"evictionSoftGracePeriod[{signal}] must be a duration such as 1m30s, not {grace!r}"


def _check_signal(name: str, signal: str) -> Iterator[str]:
    if signal not in SIGNALS:
        yield f"{name} does not know {signal}; it knows {', '.join(SIGNALS)}"


def _check_grace(kubelet: Mapping[str, Any]) -> Iterator[str]:
    soft = set(_read_texts(kubelet.get("evictionSoft")))
    grace = set(_read_texts(kubelet.get("evictionSoftGracePeriod")))
    for signal in sorted(soft - grace):
        yield f"evictionSoft[{signal}] has no evictionSoftGracePeriod"
    for signal in sorted(grace - soft):
        yield f"evictionSoftGracePeriod[{signal}] has no evictionSoft threshold"


def _check_reserved(kubelet: Mapping[str, Any]) -> Iterator[str]:
    for name in RESERVED:
        for resource, amount in _read_texts(kubelet.get(name)).items():
            if resource not in RESERVABLE:
                yield f"{name} does not know {resource}; it knows {', '.join(RESERVABLE)}"
            if amount.startswith("-"):
                yield f"{name}[{resource}] must not be negative"


def _check_percentages(kubelet: Mapping[str, Any]) -> Iterator[str]:
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    for name, value in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)):
        if _is_number(value) and not 0 <= value <= 100:
            yield f"{name} must be 0 to 100, not {value}"
    if _is_number(high) and _is_number(low) and high <= low:
        yield "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent"


def is_quantity(text: str) -> bool:
    """Whether a text is an amount; what is not is taken for an expression."""
    try:
        Quantity.parse(text)
    except BadQuantity:
        return False
    return True


def _is_threshold(text: str) -> bool:
    if text.endswith("%"):
        try:
            return 0 <= float(text.removesuffix("%")) <= 100
        except ValueError:
            return False
    return is_quantity(text) and Quantity.parse(text).nano >= 0


def _is_grace(text: str) -> bool:
    try:
        return durations.parse_nanoseconds(text) >= 0
    except ValueError:
        return False


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_texts(value: Any) -> Mapping[str, str]:
    """The texts of a map; what is not one is complained of as a wrong type."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): item for name, item in value.items() if isinstance(item, str)}


def _read_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
