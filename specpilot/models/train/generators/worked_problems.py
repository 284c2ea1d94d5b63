"""Word problems with calculator marks ``<<48/2=24>>`` as regular worked answers, and variants with other numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from types import CodeType
from typing import Final

from specpilot.models.train.generators.wording import MEN, WOMEN

__all__ = ["Problem", "name_words", "parse_problem", "plain_answer", "vary", "worked_answer"]

_MARK: Final = re.compile(r"<<([^<>=]*)=([^<>=]*)>>")
_TOKEN: Final = re.compile(r"\d+(?:\.\d+)?|\.\d+|[-+*/()]")
# A numeral of the prompt that stands alone: no decimal, fraction, ordinal or clock part.
_NUMERAL: Final = re.compile(r"(?<![\w./:,])(\d{1,3}(?:,\d{3})+|\d+)(?![\w/:]|[.,]\d)")
_TRIES: Final = 40
# Numbers a solution may use although the prompt does not show them: number words, units, percentages.
_CONSTANTS: Final = frozenset(
    map(Fraction, "1 2 3 4 5 6 7 8 9 10 12 24 30 52 60 100 365 1000 1/2 1/4 1/100 3/4".split())
)
_NOT_NAMES: Final = frozenset(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mondays Tuesdays Wednesdays Thursdays Fridays Saturdays "
    "Sundays January February March April May June July August September October November December Christmas Easter "
    "Halloween Thanksgiving American English French Spanish Chinese Mrs Miss The How What".split()
)
_ONSETS: Final = (
    "B Br C Ch D Dr F G Gr H J K Kr L M N P R S Sh T Tr V W Y Z Al El Is Or An Em Ar Ol Ul Ev".split()
)
_MIDDLES: Final = "a e i o u ai ea ia ri la ne mo li ta re so va ki do mi ru ve ni".split()
_ENDS: Final = (
    "n s l r m ra na la ny ry lo to ko sha ther lin ren dan vin mar lle rick ton bel nor ya".split()
)


@dataclass(frozen=True)
class Problem:
    """A problem whose marks recompute.

    Attributes
    ----------
    prompt
        The question.
    steps
        Equations as (tokens, result); a token is an operator, a bracket or a number.
    answer
        The last result.
    """

    prompt: str
    steps: tuple[tuple[tuple[str, ...], Fraction], ...]
    answer: Fraction


def _show(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.4f}".rstrip("0").rstrip(".")


def _spaced(tokens: Iterable[str]) -> str:
    text = " ".join(tokens).replace("( ", "(").replace(" )", ")")
    return re.sub(r"^- ", "-", text)


def worked_answer(equations: Sequence[tuple[str, str]], answer: str) -> str:
    """``Step 1: 48 / 2 = 24.`` and so on, closed by ``The answer is 24.``"""
    lines = [f"Step {k}: {left} = {right}." for k, (left, right) in enumerate(equations, start=1)]
    return "\n".join([*lines, f"The answer is {answer}."])


def _compile(tokens: Sequence[str]) -> CodeType:
    return compile("".join(tokens), "<equation>", "eval")


def _evaluate(code: CodeType, values: Mapping[str, Fraction]) -> Fraction:
    """Exact value; ``code`` holds operators, names of ``values`` and constants ``Q(top, bottom)`` only."""
    return Fraction(eval(code, {"__builtins__": {}, "Q": Fraction}, dict(values)))


def parse_problem(prompt: str, solution: str, answer: str) -> Problem | None:
    """Read the marks; None where they do not parse, do not recompute, or end in another number than ``answer``."""
    steps = []
    try:
        for left, right in _MARK.findall(solution):
            tokens = tuple(_TOKEN.findall(left))
            if "".join(tokens) != re.sub(r"[\s$]", "", left):
                return None
            tokens = tuple(_show(Fraction(t)) if t[-1].isdigit() else t for t in tokens)
            result = Fraction(right.strip().replace("$", ""))
            numbers = {f"v{i}": Fraction(t) for i, t in enumerate(tokens) if t[-1].isdigit()}
            code = _compile([f"v{i}" if t[-1].isdigit() else t for i, t in enumerate(tokens)])
            value = _evaluate(code, numbers)
            if abs(value - result) > Fraction(1, 100) * max(Fraction(1), abs(result)) or len(tokens) < 3:
                return None
            steps.append((tokens, result))
        final = Fraction(answer.replace(",", "").replace("$", ""))
    except (ValueError, SyntaxError, ZeroDivisionError, TypeError):
        return None
    if not steps or steps[-1][1] != final:
        return None
    return Problem(prompt, tuple(steps), final)


def plain_answer(problem: Problem) -> str:
    """The worked answer with the problem's own numbers."""
    return worked_answer([(_spaced(t), _show(r)) for t, r in problem.steps], _show(problem.answer))


def _bind(problem: Problem) -> tuple[list[list[str]], dict[str, int]] | None:
    """Tokens with operands named after numerals (``n48``) and earlier results (``r0``), and the numerals used."""
    shown = {int(m.replace(",", "")) for m in _NUMERAL.findall(problem.prompt)}
    numerals: dict[str, int] = {}
    bound: list[list[str]] = []
    for index, (tokens, _) in enumerate(problem.steps):
        named = []
        for token in tokens:
            if not token[-1].isdigit():
                named.append(token)
                continue
            value = Fraction(token)
            earlier = [k for k in range(index) if problem.steps[k][1] == value]
            if value.denominator == 1 and int(value) in shown and value > 1 and not (earlier and value > 12):
                numerals[f"n{value}"] = int(value)
                named.append(f"n{value}")
            elif earlier:
                named.append(f"r{earlier[-1]}")
            elif value in _CONSTANTS:
                named.append(f"Q({value.numerator},{value.denominator})")
            else:
                return None
        bound.append(named)
    return (bound, numerals) if numerals else None


def _other(rng: Random, value: int) -> int:
    unit = next((u for u in (1000, 100, 50, 10, 5) if value % u == 0 and value > u), 1)
    low, high = max(1, value // (2 * unit)), value * 2 // unit + 3
    return max(2, unit * rng.randint(low, high))


def vary(rng: Random, problem: Problem, count: int, names: frozenset[str]) -> list[tuple[str, str]]:
    """Up to ``count`` (prompt, answer) pairs with other numbers and names; every equation is recomputed."""
    binding = _bind(problem)
    if binding is None:
        return []
    bound, numerals = binding
    codes = [_compile(tokens) for tokens in bound]
    found: dict[str, str] = {}
    for _ in range(_TRIES * count):
        if len(found) == count:
            break
        changed = rng.sample(sorted(numerals), rng.randint(1, len(numerals)))
        values = {k: Fraction(v) for k, v in numerals.items()}
        values |= {k: Fraction(_other(rng, numerals[k])) for k in changed}
        results = _recompute(codes, values, problem)
        if results is None:
            continue
        lookup = {
            **{k: _show(v) for k, v in values.items()},
            **{f"r{i}": _show(r) for i, r in enumerate(results)},
        }
        equations = [
            (_spaced(_named(token, lookup) for token in tokens), _show(result))
            for tokens, result in zip(bound, results, strict=True)
        ]
        prompt = _renumber(problem.prompt, values)
        found[_rename(rng, prompt, names)] = worked_answer(equations, _show(results[-1]))
    return list(found.items())


def _named(token: str, lookup: Mapping[str, str]) -> str:
    if token.startswith("Q("):
        top, bottom = token[2:-1].split(",")
        return _show(Fraction(int(top), int(bottom)))
    return lookup.get(token, token)


def _renumber(prompt: str, values: Mapping[str, Fraction]) -> str:
    def changed(match: re.Match[str]) -> str:
        numeral = match.group(1)
        value = values.get(f"n{int(numeral.replace(',', ''))}")
        if value is None:
            return numeral
        return f"{int(value):,}" if "," in numeral else str(value)

    return _NUMERAL.sub(changed, prompt)


def _recompute(
    codes: Sequence[CodeType], values: Mapping[str, Fraction], problem: Problem
) -> list[Fraction] | None:
    scope = dict(values)
    results: list[Fraction] = []
    for index, code in enumerate(codes):
        try:
            result = _evaluate(code, scope)
        except ZeroDivisionError:
            return None
        was = problem.steps[index][1]
        # Whole results stay whole; others may have two decimals.
        if (
            result < 0
            or (result * (1 if was.denominator == 1 else 100)).denominator != 1
            or result > 10_000_000
        ):
            return None
        if result == 0 and was != 0:
            return None
        scope[f"r{index}"] = result
        results.append(result)
    return results


def name_words(prompts: Iterable[str]) -> frozenset[str]:
    """Capitalised words that no prompt writes in lower case: first names, mostly."""
    upper: set[str] = set()
    lower: set[str] = set()
    for prompt in prompts:
        upper.update(re.findall(r"\b[A-Z][a-z]{2,}\b", prompt))
        lower.update(re.findall(r"\b[a-z]{3,}\b", prompt))
    return frozenset(w for w in upper if w.lower() not in lower and w not in _NOT_NAMES)


def _fresh_name(rng: Random, prompt: str) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(_ONSETS) + rng.choice(_MIDDLES) + rng.choice(_ENDS)
    female = re.search(r"\b(she|her|hers)\b", prompt, re.IGNORECASE)
    male = re.search(r"\b(he|his|him)\b", prompt, re.IGNORECASE)
    if bool(female) == bool(male):
        return rng.choice((*WOMEN, *MEN))
    return rng.choice(WOMEN if female else MEN)


def _rename(rng: Random, prompt: str, names: frozenset[str]) -> str:
    found = list(dict.fromkeys(w for w in re.findall(r"\b[A-Z][a-z]{2,}\b", prompt) if w in names))
    fresh: dict[str, str] = {}
    for word in found:
        name = _fresh_name(rng, prompt)
        while name in fresh.values() or name in found:
            name = _fresh_name(rng, prompt)
        fresh[word] = name
    return re.sub(r"\b[A-Z][a-z]{2,}\b", lambda m: fresh.get(m.group(), m.group()), prompt)
