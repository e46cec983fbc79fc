"""The regular expressions that admission knows by name. RE2, unanchored unless `^` and `$` are shown.

Several are looser or stricter than they look; objects stored under them exist, so the quirks stay.
"""

from __future__ import annotations

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"
BUDGET_DURATION = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
BUDGET_NODES = r"^((100|[0-9]{1,2})%|[0-9]+)$"
# Karpenter: each anchor binds to one alternative only, so `@dailyxyz` passes here and fails when parsed.
CRON = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
PRICE = r"^\d+(\.\d+)?$"
DOLLARS = r"^[0-9]{1,9}(\.[0-9]{1,6})?$"
PERCENTAGE = r"^[0-9]{1,3}%$"
CURRENCY = r"^[A-Z]{3}$"
PRICE_ADJUSTMENT = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"
# Karpenter: 18Ti, 19Ti, 28Ti and so on are refused, and a bare `Ti` or `T` is let through.
VOLUME_SIZE = (
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi"
    r"|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G"
    r"|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
)
EVICTION_THRESHOLD = (
    r"^((\d{1,2}(\.\d{1,2})?|100(\.0{1,2})?)%||(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)$"
)
REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
REASON_OR_EMPTY = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"
CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)

MEANING = {
    QUANTITY: "an amount such as 500m, 2 or 1.5Gi",
    DURATION: "a duration in h, m and s such as 1h30m",
    DURATION_OR_NEVER: "Never or a duration in h, m and s such as 1h30m",
    BUDGET_DURATION: "hours and minutes such as 8h, 90m or 1h30m",
    BUDGET_NODES: 'a number such as "5" or a percentage from 0% to 100%',
    CRON: "five cron fields such as 0 9 * * 1-5, or a macro such as @daily",
    QUALIFIED_NAME: "a name such as team or example.com/team",
    LABEL_VALUE: "a label value: letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    PRICE: "a price such as 0.25",
    DOLLARS: 'an amount; write dollars such as "40.00"',
    PERCENTAGE: 'a percentage such as "10%"',
    CURRENCY: "three capital letters such as USD",
    PRICE_ADJUSTMENT: "a signed amount such as +0.5, or a signed percentage from -100% such as -10%",
    VOLUME_SIZE: "a volume size such as 100Gi, at most 59000Gi, 64000G, 58Ti or 64T",
    EVICTION_THRESHOLD: "a percentage up to 100% or an amount such as 500Mi",
    REASON: "a reason in one word",
    REASON_OR_EMPTY: "a reason in one word, or empty",
    CONDITION_TYPE: "a condition type such as Ready or example.com/Ready",
}
"""The patterns in words, for people; the API server shows the pattern itself."""
