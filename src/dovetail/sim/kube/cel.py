"""The one home of the CEL library: compile a Kubernetes rule once, evaluate it many times.

Values are plain JSON (plus datetime, timedelta and bytes where a schema's format says so). Three things
differ from a real server. Types are checked when a rule runs, not when it is compiled. Optional selectors
(`.?field`, `[?index]`), two-variable comprehensions, semver() and named formats are refused when it is
compiled. An error inside all() or exists() is not forgiven because a later element settles the question.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import ModuleType
from typing import Any

from dovetail.sim.kube.cel_functions import FUNCTIONS, FunctionError


def _library() -> Any:
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


library = _library()

# What one rule may cost: elements visited by nested comprehensions, as the worst case of its data.
COST_LIMIT = 10_000_000
_TEXT_LIMIT = 50_000
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
_IMMUTABLE = re.compile(r"(?:self==oldSelf|oldSelf==self|has\(self\.(\w+)\)==has\(oldSelf\.\1\))\Z")
_TOKEN = re.compile(
    r"""(?P<string>[rRbB]{0,2}(?:\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<comment>//[^\n]*)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<other>\s+|.)""",
    re.VERBOSE | re.DOTALL,
)


class CelError(Exception):
    """A rule that does not compile, or that has no answer for the values it was given."""


class _Failure:
    """Returned to the library instead of raising: it prints what a Python function raises."""

    def __init__(self, message: str) -> None:
        self.message = message


class Rule:
    """One compiled expression; evaluating it has no effect but to be quicker the next time."""

    def __init__(self, text: str) -> None:
        tokens = _tokens(text)
        _check_arity(text, tokens)
        self.text = text
        self.uses_old = "oldSelf" in tokens
        self._program = _compile(text, _rewritten(tokens))
        # Immutability, the one transition rule everybody writes, needs no asking when nothing changed.
        self.holds_when_equal = _IMMUTABLE.match(re.sub(r"\s", "", text)) is not None
        # The chains of fields it selects from the value it is about, old or new.
        self.paths = frozenset(_chains(tokens, "self")) | frozenset(_chains(tokens, "oldSelf"))
        self._sized = "size" in tokens
        self._nesting = _nesting(tokens)
        self._answers: dict[str, bool] = {}
        # Only what the rule names is handed over: values and functions cost time on every evaluation.
        self._parts = {name: _fields_of(tokens, name) for name in ("self", "oldSelf")}
        names = {"textOf" if token == "string" else token for token in tokens}
        self._functions = [(n, f) for n, f in _ALL_FUNCTIONS if n.rpartition(".")[2] in names]

    def evaluate(self, self_value: Any, old: Any = None, *, optional_old: bool = False, **extra: Any) -> bool:
        """Whether the rule holds; `old` is only bound when there is one, unless it is optional."""
        if not self.uses_old and not extra and isinstance(self_value, dict | list):
            return self._remembered(self_value)
        variables = {"self": self_value, **extra}
        if optional_old:
            variables["oldSelf"] = (
                library.OptionalValue.none() if old is None else library.OptionalValue.of(old)
            )
        elif old is not None:
            variables["oldSelf"] = old
        return self._verdict(variables)

    def _remembered(self, value: Any) -> bool:
        """The verdict on a value seen before, as the requirements of a thousand claims of one pool are."""
        part = _only(value, self._parts["self"])
        try:
            key = json.dumps(part)
        except TypeError:
            return self._verdict({"self": part})  # it holds times or bytes
        answer = self._answers.get(key)
        if answer is None:
            answer = self._verdict({"self": part})
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            if len(key) <= _LONGEST_KEY:
                self._answers[key] = answer
        return answer

    def _verdict(self, variables: Mapping[str, Any]) -> bool:
        answer = self.value(variables)
        if not isinstance(answer, bool):
            raise CelError(f"the rule {self.text!r} gives {_type_name(answer)}, not a bool")
        return answer

    def value(self, variables: Mapping[str, Any]) -> Any:
        """What the expression comes to, whatever its type."""
        variables = {name: _only(value, self._parts.get(name)) for name, value in variables.items()}
        self._check_cost(variables)
        if self._sized and not all(map(_ascii, variables.values())):
            return self._execute(_by_code_points(self.text), variables, [*self._functions, _CODE_POINTS])
        return self._execute(self._program, variables, self._functions)

    def _execute(
        self, program: Any, variables: Mapping[str, Any], functions: Sequence[tuple[str, Callable[..., Any]]]
    ) -> Any:
        failures: list[str] = []
        context: Any = dict(variables)
        if functions:
            context = library.Context(context, _guarded(functions, failures))
        try:
            return program.execute(context)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            detail = failures[-1] if failures else _first_sentence(error)
            raise CelError(detail) from error

    def _check_cost(self, variables: Mapping[str, Any]) -> None:
        if self._nesting < 2:
            return
        longest = max((_longest(value) for value in variables.values()), default=0)
        if longest**self._nesting > COST_LIMIT:
            raise CelError("no further evaluation: the rule costs more than the limit for these values")


@lru_cache(maxsize=4096)
def compile_rule(text: str) -> Rule:
    """The rule of this text; the same text is compiled once."""
    return Rule(text)


def _compile(text: str, rewritten: str) -> Any:
    if len(text) > _TEXT_LIMIT:
        raise CelError(f"the rule is longer than {_TEXT_LIMIT} characters")
    try:
        program = library.compile(rewritten)
    except ValueError as error:
        raise CelError(f"the rule {text!r} does not compile: {_first_sentence(error)}") from error
    names = {name for name in program.functions() if re.match(r"[A-Za-z_]\w*$", name) and name[0] != "_"}
    unknown = names - _NATIVE - _KNOWN
    if unknown:
        raise CelError(f"the rule {text!r} does not compile: undeclared reference to {sorted(unknown)[0]!r}")
    return program


# The library names a dotted function by its last part only.
_KNOWN = frozenset(name.rpartition(".")[2] for name in FUNCTIONS) | {"codePoints"}


@lru_cache(maxsize=256)
def _by_code_points(text: str) -> Any:
    """The same rule with size() counting characters: the library's own counts bytes of a string."""
    tokens = ["codePoints" if token == "size" else token for token in _tokens(text)]
    return _compile(text, _rewritten(tokens))


def _code_points(value: Any) -> int:
    if not isinstance(value, str | bytes | list | dict):
        raise FunctionError("no such overload: size")
    return len(value)


def _guarded(
    functions: Sequence[tuple[str, Callable[..., Any]]], failures: list[str]
) -> dict[str, Callable[..., Any]]:
    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except (FunctionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                failures.append(str(error))
                return _Failure(str(error))

        return call

    return {name: guarded(function) for name, function in functions}


_ALL_FUNCTIONS = tuple(FUNCTIONS.items())
_CODE_POINTS = ("codePoints", _code_points)


def _tokens(text: str) -> list[str]:
    return [match.group() for match in _TOKEN.finditer(text) if match.lastgroup != "comment"]


def _rewritten(tokens: Sequence[str]) -> str:
    """The expression with string() as our own, which writes numbers and times as Kubernetes does."""
    called = _called(tokens)
    return "".join("textOf" if token == "string" and i in called else token for i, token in enumerate(tokens))


def _called(tokens: Sequence[str]) -> frozenset[int]:
    """Where a name is followed by an opening parenthesis."""
    solid = [i for i, token in enumerate(tokens) if not token.isspace()]
    return frozenset(here for here, after in pairwise(solid) if tokens[after] == "(")


def _check_arity(text: str, tokens: Sequence[str]) -> None:
    for index in _called(tokens):
        if tokens[index] in _ONE_VARIABLE and _commas(tokens, index + 1) > 1:
            raise CelError(
                f"the rule {text!r} does not compile: two-variable comprehensions are not supported"
            )


def _commas(tokens: Sequence[str], start: int) -> int:
    """How many commas stand directly between the next parenthesis and its end."""
    depth = count = 0
    for token in tokens[start:]:
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth == 0 and not token.isspace():
            break
        count += token == "," and depth == 1
    return count


def _nesting(tokens: Sequence[str]) -> int:
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
    chains = list(_chains(tokens, name))
    return None if () in chains else frozenset(chain[0] for chain in chains)


def _chains(tokens: Sequence[str], name: str) -> Iterator[tuple[str, ...]]:
    """Each use of a variable, as the fields selected from it one after another."""
    plain = [token for token in tokens if not token.isspace()]
    for index, token in enumerate(plain):
        if token != name or plain[index - 1 : index] == ["."]:
            continue
        chain: list[str] = []
        rest = [*plain[index + 1 :], "", "", ""]
        while rest[0] == "." and rest[1].isidentifier() and rest[2] != "(":
            chain.append(rest[1])
            rest = rest[2:]
        yield tuple(chain)


def _only(value: Any, fields: frozenset[str] | None) -> Any:
    if fields is None or not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if name in fields}


def _ascii(value: Any) -> bool:
    return json.dumps(value, ensure_ascii=False, default=str).isascii()


def _longest(value: Any) -> int:
    """The length of the longest list or map anywhere in a value."""
    if not isinstance(value, dict | list):
        return 0
    items = value.values() if isinstance(value, dict) else value
    return max([len(value), *map(_longest, items)])


def _first_sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no such key: {error.args[0]}"
    text = str(error).split(" Check ", 1)[0]
    return text.split(". CEL does not coerce", 1)[0].splitlines()[0]


def _type_name(value: Any) -> str:
    return {int: "an int", float: "a double", str: "a string", list: "a list", dict: "a map"}.get(
        type(value), "null" if value is None else type(value).__name__
    )
