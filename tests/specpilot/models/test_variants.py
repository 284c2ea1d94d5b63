"""Variants of word problems and functions: every equation recomputes, every new name is used throughout."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from random import Random

import pytest

from specpilot.models.train.generators.code_names import rename_function
from specpilot.models.train.generators.lexicon import identifier, lexicon
from specpilot.models.train.generators.worked_problems import (
    name_words,
    parse_problem,
    plain_answer,
    vary,
    worked_answer,
)

_PROMPT = (
    "Tim has 48 marbles and gives half of them to Ann. Then Tim buys 3 bags of 10 marbles. How many are left?"
)
_SOLUTION = "48/2 = <<48/2=24>>24.\n3*10 = <<3*10=30>>30.\n24+30 = <<24+30=54>>54."

_CODE = '''def scale(values, factor=2):
    """Multiply all values by factor.

    >>> scale([1, 2], factor=3)
    [3, 6]
    """
    total = sorted(values, key=abs, reverse=True)
    values.sort()
    return dict(values=total, factor=factor)'''
_STUB = _CODE[: _CODE.index("    total")]


def test_marks_become_numbered_equations() -> None:
    problem = parse_problem(_PROMPT, _SOLUTION, "54")
    assert problem is not None
    assert plain_answer(problem) == (
        "Step 1: 48 / 2 = 24.\nStep 2: 3 * 10 = 30.\nStep 3: 24 + 30 = 54.\nThe answer is 54."
    )


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (_SOLUTION, "55"),
        ("<<48/2=25>>", "25"),
        ("<<48/0=0>>", "0"),
        ("<<4x+2=6>>", "6"),
        ("<<48=48>>", "48"),
        ("no marks", "2"),
        ("<<2+2=4>>", "four"),
    ],
)
def test_what_does_not_recompute_is_no_problem(solution: str, answer: str) -> None:
    assert parse_problem(_PROMPT, solution, answer) is None


def test_variants_recompute_and_use_the_numbers_and_names_of_their_prompts() -> None:
    problem = parse_problem(_PROMPT, _SOLUTION, "54")
    assert problem is not None
    variants = vary(Random(1), problem, 6, frozenset({"Tim", "Ann"}))
    assert len({prompt for prompt, _ in variants}) == 6
    for prompt, answer in variants:
        *steps, closing = answer.split("\n")
        results = []
        for step in steps:
            found = re.fullmatch(r"Step \d: (\d+) ([/*+]) (\d+) = (\d+)\.", step)
            assert found, step
            left, sign, right, result = found.groups()
            operations = {"/": lambda x, y: x / y, "*": lambda x, y: x * y, "+": lambda x, y: x + y}
            assert operations[sign](Fraction(left), Fraction(right)) == int(result)
            results.append(result)
        assert closing == f"The answer is {results[-1]}."
        assert re.findall(r"\d+", prompt) == re.findall(
            r"\d+", f"{steps[0].split()[2]} {steps[1][7:].split(' =')[0]}"
        )
        assert "Tim" not in prompt and "Ann" not in prompt
        first, second = prompt.split()[0], prompt.split(". Then ")[1].split()[0]
        assert first == second


def test_a_problem_with_numbers_from_nowhere_has_no_variants() -> None:
    problem = parse_problem("Tim has 48 marbles.", "<<48*17=816>>", "816")
    assert problem is not None
    assert vary(Random(1), problem, 3, frozenset()) == []


def test_names_are_capitalised_words_that_are_never_small() -> None:
    prompts = [
        "Mark has a mark. On Monday Lena sees Mark.",
        "There is Lena. He is there and the rest is on it.",
    ]
    assert name_words(prompts) == {"Lena"}


def test_worked_answer_closes_with_the_answer() -> None:
    assert worked_answer([("1 + 1", "2")], "2") == "Step 1: 1 + 1 = 2.\nThe answer is 2."


def test_renaming_is_consistent_and_leaves_foreign_keywords_alone() -> None:
    renamed = rename_function(Random(4), _STUB, _CODE, "scale")
    assert renamed is not None
    stub, code = renamed
    assert code.startswith(stub)
    node = ast.parse(code).body[0]
    assert isinstance(node, ast.FunctionDef)
    values, factor = (argument.arg for argument in node.args.args)
    assert node.name != "scale" and values != "values" and factor != "factor"
    assert f"Multiply all {values} by {factor}." in stub
    assert f">>> {node.name}([1, 2], " in stub
    assert f"{values}.sort()" in code and f"dict(values=total, factor={factor})" in code


def test_functions_that_cannot_be_renamed_with_certainty_are_refused() -> None:
    formatted = 'def show(value):\n    return f"{value}"'
    assert rename_function(Random(1), formatted, formatted, "show") is None
    assert rename_function(Random(1), _STUB, _CODE, "missing") is None


def test_lexicon_is_large_and_identifiers_are_valid() -> None:
    assert len(lexicon().words) >= 2000
    assert min(map(len, (lexicon().nouns, lexicon().verbs, lexicon().adjectives, lexicon().sentences))) > 100
    rng = Random(2)
    assert all(identifier(rng).isidentifier() for _ in range(200))
