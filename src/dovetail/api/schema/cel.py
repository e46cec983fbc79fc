"""The one home of the CEL library: compile a Kubernetes rule once, evaluate it many times.

Values are plain JSON (plus datetime, timedelta and bytes where a schema's format says so). Three things
differ from a real server. Types are checked when a rule runs, not when it is compiled. Optional selectors
(`.?field`, `[?index]`), two-variable comprehensions, semver() and named formats are refused when it is
compiled. An error inside all() or exists() is not forgiven because a later element settles the question.

An evaluation is priced from its rule and its data first. Where that guess is too dear it runs with a meter in
every comprehension, and is refused where the cost itself is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from types import ModuleType
from typing import Any

from dovetail.api.schema.cel_cost import (
    CALL_LIMIT,
    NATIVE_LIMIT,
    CostBudget,
    CostMeter,
    Extent,
    measure_extent,
    price_call,
)
from dovetail.api.schema.cel_functions import FUNCTIONS
from dovetail.api.schema.cel_text import FunctionError


@cache
def load_library() -> Any:
    """The CEL library, loaded when the first rule is compiled."""
    # The package brings a shell of its own along, and that a whole terminal toolkit: a quarter of a second
    # at every start, for nothing. An empty module stands in for the shell while the rest is imported.
    if "cel" not in sys.modules:
        sys.modules["cel.cli"] = ModuleType("cel.cli")
    try:
        import cel
    finally:
        if not hasattr(sys.modules.get("cel.cli"), "__file__"):
            sys.modules.pop("cel.cli", None)
    return cel


_TEXT_LIMIT = 50_000
_DEEPEST = 250
_LONGEST_CHAIN = 2_000
_CHAINING = frozenset({".", "[", "+", "-", "*", "/", "%", "<", ">", "=", "!", "?", "in"})
# How many verdicts a rule keeps, and on values of what size.
_REMEMBERED = 512
_LONGEST_KEY = 4_000

_NATIVE = frozenset(
    re.findall(
        r"\w+",
        "size has all exists exists_one existsOne map filter matches contains startsWith endsWith int uint "
        "double string bytes timestamp duration dyn type getFullYear getMonth getDayOfMonth getDate "
        "getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds none of ofNonZeroValue "
        "value hasValue or orValue max min",
    )
)
_ONE_VARIABLE = frozenset({"all", "exists", "exists_one", "existsOne"})
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
# Operators and functions of the library that read what they are given.
_READING = frozenset({"=", "in", "contains", "startsWith", "endsWith", "+"})
_BUILDING = frozenset({"map", "filter"})
_STRETCHING = frozenset({"range", "split", "findAll"})
# Functions of the library that ours stand in for.
_OWN = {"string": "textOf", "matches": "matchesPattern"}
_IMMUTABLE = re.compile(r"(?:self==oldSelf|oldSelf==self|has\(self\.(\w+)\)==has\(oldSelf\.\1\))\Z")
_TOKEN = re.compile(
    r"""(?P<string>[rRbB]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<comment>//[^\n]*)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<other>\s+|.)""",
    re.VERBOSE | re.DOTALL,
)


class CelError(Exception):
    """A rule that does not compile, or that has no answer for the values it was given."""


class CostExceeded(CelError):
    """An evaluation that cost more than it may: no further rule of its object is run."""


class _Failure:
    """Returned to the library instead of raising: it prints what a Python function raises."""

    def __init__(self, message: str) -> None:
        self.message = message


class CelRule:
    """One compiled expression; evaluating it has no effect but to be quicker the next time."""

    def __init__(self, text: str) -> None:
        if len(text) > _TEXT_LIMIT:
            raise CelError(f"the rule is longer than {_TEXT_LIMIT} characters")
        tokens = _split_tokens(text)
        _check_depth(tokens)
        _check_arity(text, tokens)
        self.text = text
        self.uses_old = "oldSelf" in tokens
        self._program = _compile_program(text, _rewrite_tokens(tokens))
        # Immutability, the one transition rule everybody writes, needs no asking when nothing changed.
        self.holds_when_equal = _IMMUTABLE.match(re.sub(r"\s", "", text)) is not None
        # The chains of fields it selects from the value it is about, old or new.
        self.paths = frozenset(_list_chains(tokens, "self")) | frozenset(_list_chains(tokens, "oldSelf"))
        self._sized = "size" in tokens
        self._nesting = _measure_nesting(tokens)
        self._names = 1 + sum(token.isidentifier() for token in tokens)
        self._reads = sum(token in _READING for token in tokens)
        self._joins = tokens.count("+")
        self._builds = sum(token in _BUILDING for token in tokens)
        self._written = tokens.count(",")  # a list written out in the rule is no longer
        # Lists that are longer than anything in the data: only a meter sees them.
        self._stretches = self._nesting > 0 and any(token in _STRETCHING for token in tokens)
        self._answers: dict[str, tuple[bool, int]] = {}
        # Only what the rule names is handed over: values and functions cost time on every evaluation.
        self._parts = {name: _fields_of(tokens, name) for name in ("self", "oldSelf")}
        names = {_OWN.get(token, token) for token in tokens}
        self._functions = [(n, f) for n, f in _ALL_FUNCTIONS if n.rpartition(".")[2] in names]

    def evaluate(
        self,
        self_value: Any,
        old: Any = None,
        *,
        optional_old: bool = False,
        budget: CostBudget | None = None,
        **extra: Any,
    ) -> bool:
        """Whether the rule holds; `old` is only bound when there is one, unless it is optional."""
        budget = budget or CostBudget()
        if not self.uses_old and not extra and isinstance(self_value, dict | list):
            return self._evaluate_cached(self_value, budget)
        variables = {"self": self_value, **extra}
        if optional_old:
            variables["oldSelf"] = (
                load_library().OptionalValue.none() if old is None else load_library().OptionalValue.of(old)
            )
        elif old is not None:
            variables["oldSelf"] = old
        return self._evaluate_bool(variables, budget)

    def _evaluate_cached(self, value: Any, budget: CostBudget) -> bool:
        """The verdict on a value seen before, as the requirements of a thousand claims of one pool are."""
        part = _select_fields(value, self._parts["self"])
        try:
            key = json.dumps(part)
        except TypeError:
            return self._evaluate_bool({"self": part}, budget)  # it holds times or bytes
        known = self._answers.get(key)
        if known is not None:
            answer, cost = known
            self._spend_budget(budget, cost)
            return answer
        before = budget.left
        answer = self._evaluate_bool({"self": part}, budget)
        if len(self._answers) >= _REMEMBERED:
            self._answers.clear()
        if len(key) <= _LONGEST_KEY:
            self._answers[key] = answer, before - budget.left
        return answer

    def _evaluate_bool(self, variables: Mapping[str, Any], budget: CostBudget) -> bool:
        answer = self.compute_value(variables, budget)
        if not isinstance(answer, bool):
            raise CelError(f"the rule {self.text!r} gives {_describe_type(answer)}, not a bool")
        return answer

    def compute_value(self, variables: Mapping[str, Any], budget: CostBudget | None = None) -> Any:
        """What the expression comes to, whatever its type; its cost is taken from the budget."""
        budget = budget or CostBudget()
        variables = {name: _select_fields(value, self._parts.get(name)) for name, value in variables.items()}
        extent = measure_extent(list(variables.values()))
        if self._exceeds_memory(extent):
            self._spend_budget(budget, CALL_LIMIT + 1)
        guess = self._guess_cost(extent)
        counted = self._stretches or self._estimate_worst_cost(extent) > min(CALL_LIMIT, budget.left)
        sized = self._sized and not all(map(_is_ascii, variables.values()))
        program = _compile_variant(self.text, counted, sized) if counted or sized else self._program
        meter = CostMeter(budget, self._names if counted else guess)
        try:
            return _execute_program(program, variables, self._build_functions(meter, counted, sized))
        finally:
            self._spend_budget(budget, meter.cost)

    def _spend_budget(self, budget: CostBudget, cost: int) -> None:
        budget.left -= cost
        if cost > CALL_LIMIT:
            budget.exhaust()
            told = "no further validation rules will be run due to call cost exceeds limit for rule"
            raise CostExceeded(f"{told}: {self.text}")
        if budget.exhausted:
            raise CostExceeded(
                "validation failed due to running out of cost budget, no further validation rules will be run"
            )

    def _build_functions(self, meter: CostMeter, counted: bool, sized: bool) -> dict[str, Callable[..., Any]]:
        functions = {name: _add_meter(name, function, meter) for name, function in self._functions}
        if sized:
            functions["codePoints"] = _count_code_points
        if counted:
            functions["visitElement"] = partial(meter.count_visit, self._names)
            functions["gatherElement"] = partial(meter.count_gathered, self._names)
        return functions

    def _exceeds_memory(self, extent: Extent) -> bool:
        """Whether the library might make more than memory holds before a meter could stop it."""
        made = self._builds * extent.whole + self._estimate_join_cost(extent)
        return made * self._count_visits(extent) > NATIVE_LIMIT

    def _estimate_worst_cost(self, extent: Extent) -> int:
        """What an evaluation costs if each operator reads all of the data."""
        return (
            self._names + self._reads * extent.whole + self._estimate_join_cost(extent)
        ) * self._count_visits(extent)

    def _guess_cost(self, extent: Extent) -> int:
        """What an evaluation costs at most, as far as rule and data tell."""
        read = self._reads * extent.text // 10 + self._estimate_join_cost(extent)
        return (self._names + read) * self._count_visits(extent)

    def _count_visits(self, extent: Extent) -> int:
        """How many elements comprehensions visit at most."""
        visits: int = max(1, extent.length, self._written) ** self._nesting
        return visits

    def _estimate_join_cost(self, extent: Extent) -> int:
        """What sums of texts and lists cost: each is made anew for each plus."""
        return self._joins**2 * (extent.text // 10 + extent.length)


def _execute_program(
    program: Any, variables: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    failures: list[str] = []
    context: Any = dict(variables)
    if functions:
        context = load_library().Context(context, _guard_functions(functions, failures))
    try:
        return program.execute(context)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        detail = failures[-1] if failures else _first_sentence(error)
        raise CelError(detail) from error


@lru_cache(maxsize=4096)
def compile_rule(text: str) -> CelRule:
    """The rule of this text; the same text is compiled once."""
    return CelRule(text)


def _compile_program(text: str, rewritten: str) -> Any:
    try:
        program = load_library().compile(rewritten)
    except ValueError as error:
        raise CelError(f"the rule {text!r} does not compile: {_first_sentence(error)}") from error
    names = {name for name in program.functions() if re.match(r"[A-Za-z_]\w*$", name) and name[0] != "_"}
    unknown = names - _NATIVE - _KNOWN
    if unknown:
        raise CelError(f"the rule {text!r} does not compile: undeclared reference to {sorted(unknown)[0]!r}")
    return program


# The library names a dotted function by its last part only.
_KNOWN = frozenset(name.rpartition(".")[2] for name in FUNCTIONS) | {
    *("codePoints", "visitElement", "gatherElement")
}


@lru_cache(maxsize=256)
def _compile_variant(text: str, counted: bool, sized: bool) -> Any:
    """The same rule with a meter in each comprehension, or with size() counting characters.

    The library's own size() counts the bytes of a string.
    """
    tokens = _with_meters(_split_tokens(text)) if counted else _split_tokens(text)
    if sized:
        tokens = ["codePoints" if token == "size" else token for token in tokens]
    return _compile_program(text, _rewrite_tokens(tokens))


def _with_meters(tokens: Sequence[str]) -> list[str]:
    """The tokens with `visitElement() ? (…) : false` around what each comprehension asks of an element."""
    opens, closes = {}, set()
    for index in _find_calls(tokens):
        if tokens[index] in _MACROS:
            commas, end = _find_separators(tokens, index + 1)
            if commas:
                opens[commas[0]] = "gatherElement" if tokens[index] in _BUILDING else "visitElement"
                closes.add(commas[1] if len(commas) > 1 else end)
    metered: list[str] = []
    for index, token in enumerate(tokens):
        metered += [") : false"] * (index in closes) + [token]
        metered += [f" {opens[index]}() ? ("] if index in opens else []
    return metered


def _count_code_points(value: Any) -> int:
    if not isinstance(value, str | bytes | list | dict):
        raise FunctionError("no such overload: size")
    return len(value)


def _add_meter(name: str, function: Callable[..., Any], meter: CostMeter) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        meter.add_cost(price_call(name, args))
        return function(*args)

    return call


def _guard_functions(
    functions: Mapping[str, Callable[..., Any]], failures: list[str]
) -> dict[str, Callable[..., Any]]:
    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except (FunctionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                failures.append(str(error))
                return _Failure(str(error))

        return call

    return {name: guarded(function) for name, function in functions.items()}


_ALL_FUNCTIONS = tuple(FUNCTIONS.items())


def _split_tokens(text: str) -> list[str]:
    return [match.group() for match in _TOKEN.finditer(text) if match.lastgroup != "comment"]


def _rewrite_tokens(tokens: Sequence[str]) -> str:
    """The expression with our own string(), which writes as Kubernetes does, and our own matches()."""
    called = _find_calls(tokens)
    return "".join(_OWN.get(token, token) if i in called else token for i, token in enumerate(tokens))


def _find_calls(tokens: Sequence[str]) -> frozenset[int]:
    """Where a name is followed by an opening parenthesis."""
    solid = [i for i, token in enumerate(tokens) if not token.isspace()]
    return frozenset(here for here, after in pairwise(solid) if tokens[after] == "(")


def _check_arity(text: str, tokens: Sequence[str]) -> None:
    for index in _find_calls(tokens):
        if tokens[index] in _ONE_VARIABLE and len(_find_separators(tokens, index + 1)[0]) > 1:
            raise CelError(
                f"the rule {text!r} does not compile: two-variable comprehensions are not supported"
            )


def _find_separators(tokens: Sequence[str], start: int) -> tuple[list[int], int]:
    """The commas that stand directly between the next parenthesis and its end, and that end."""
    depth = 0
    commas: list[int] = []
    for index in range(start, len(tokens)):
        token = tokens[index]
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth == 0 and not token.isspace():
            return commas, index
        if token == "," and depth == 1:
            commas.append(index)
    return commas, len(tokens)


def _check_depth(tokens: Sequence[str]) -> None:
    """Refuse what nests or chains too deep, as a real server does: the library walks it by recursion."""
    chained = sum(token in _CHAINING for token in tokens)
    if chained > _LONGEST_CHAIN:
        raise CelError(f"the rule has {chained} selectors and operators, more than {_LONGEST_CHAIN}")
    depth = 0
    for token in tokens:
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth > _DEEPEST:
            raise CelError(f"expression recursion limit exceeded: {_DEEPEST}")


def _measure_nesting(tokens: Sequence[str]) -> int:
    """How deep comprehensions stand inside one another."""
    deepest, stack = 0, []
    previous = ""
    for token in (t for t in tokens if not t.isspace()):
        if token == "(":
            stack.append(previous in _MACROS)
            deepest = max(deepest, sum(stack))
        elif token == ")" and stack:
            stack.pop()
        previous = token
    return deepest


def _fields_of(tokens: Sequence[str], name: str) -> frozenset[str] | None:
    """The fields of a variable that the rule selects, or None if it uses the variable in any other way."""
    chains = list(_list_chains(tokens, name))
    return None if () in chains else frozenset(chain[0] for chain in chains)


def _list_chains(tokens: Sequence[str], name: str) -> Iterator[tuple[str, ...]]:
    """Each use of a variable, as the fields selected from it one after another."""
    plain = [*(token for token in tokens if not token.isspace()), "", "", ""]
    for index, token in enumerate(plain):
        if token != name or plain[index - 1 : index] == ["."]:
            continue
        chain: list[str] = []
        place = index + 1
        while plain[place] == "." and plain[place + 1].isidentifier() and plain[place + 2] != "(":
            chain.append(plain[place + 1])
            place += 2
        yield tuple(chain)


def _select_fields(value: Any, fields: frozenset[str] | None) -> Any:
    if fields is None or not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if name in fields}


def _is_ascii(value: Any) -> bool:
    return json.dumps(value, ensure_ascii=False, default=str).isascii()


def _first_sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no such key: {error.args[0]}"
    text = str(error).split(" Check ", 1)[0]
    return text.split(". CEL does not coerce", 1)[0].splitlines()[0]


def _describe_type(value: Any) -> str:
    return {int: "an int", float: "a double", str: "a string", list: "a list", dict: "a map"}.get(
        type(value), "null" if value is None else type(value).__name__
    )
