"""The text generators: deterministic, varied, with code that runs and arithmetic that holds."""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction
from itertools import islice
from random import Random

import pytest

from specpilot.errors import ConfigError
from specpilot.models.chat import ASSISTANT, USER, Chat
from specpilot.models.train.generators import KINDS, generate
from specpilot.models.train.generators.competition_algebra import ALGEBRA_TEMPLATES, poly_latex
from specpilot.models.train.generators.competition_counting import COUNTING_TEMPLATES
from specpilot.models.train.generators.competition_geometry import GEOMETRY_TEMPLATES, root_latex
from specpilot.models.train.generators.competition_numbers import NUMBER_TEMPLATES
from specpilot.models.train.generators.competition_precalculus import PRECALCULUS_TEMPLATES
from specpilot.models.train.generators.python_code import draw_exercise
from specpilot.models.train.generators.python_spec import run_exercise

_OPERATIONS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_EQUATION = re.compile(r"(?<![\w.^\\{}/*+()-])(\$?\d[\d $.+*/()-]*?) = \$?(\d+(?:\.\d+)?)")
_LATEX_EQUATION = re.compile(r"(?:^|= )((?:[\d ()+-]|\\cdot )*\d\)?) = (-?\d+)(?!\d| ?[-+(^a-z\\]|\.\d)")


def _some(kind: str, count: int, seed: int = 7) -> list[Chat]:
    return list(islice(generate(kind, seed=seed, target_bytes=100_000_000), count))


def _value(expression: str) -> Fraction:
    """Exact value of an expression of numbers and the four operations."""

    def walk(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float()):
                return Fraction(str(node.value))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = walk(left), walk(right)
                return _OPERATIONS[type(op)](a, b)
        raise AssertionError(f"not arithmetic: {expression!r}")

    return walk(ast.parse(expression.strip(), mode="eval").body)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_gives_same_text_and_another_seed_does_not(kind: str) -> None:
    assert _some(kind, 50) == _some(kind, 50)
    assert _some(kind, 50) != _some(kind, 50, seed=8)


@pytest.mark.parametrize("kind", KINDS)
def test_chats_alternate_end_with_an_answer_and_do_not_repeat(kind: str) -> None:
    chats = _some(kind, 400)
    for chat in chats:
        assert [message["role"] for message in chat] == [USER, ASSISTANT] * (len(chat) // 2)
        assert len(chat) // 2 in {"dialogue": (2,), "general_advice": (1, 2)}.get(kind, (1,))
        for message in chat:
            assert message["content"].strip()
            if kind not in ("python_code", "repetition", "general_advice"):
                # A doubled full stop or word, a doubled space or an unfilled name reads badly.
                bad = re.search(
                    r"[.?!][.?](?!\.)|\b([a-z]+) \1\b|\w {2,}\w|[{]who|\bNone None\b", message["content"]
                )
                assert not bad, message["content"]
    assert len({str(chat) for chat in chats}) == len(chats)


@pytest.mark.parametrize("kind", KINDS)
def test_target_size_is_reached_and_a_larger_target_continues(kind: str) -> None:
    small = list(generate(kind, seed=3, target_bytes=20_000))
    large = list(generate(kind, seed=3, target_bytes=40_000))
    assert large[: len(small)] == small
    # One separating byte counts between turns.
    assert sum(len("|".join(m["content"] for m in chat).encode()) for chat in small) >= 20_000


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown generator kind 'poetry'"):
        next(generate("poetry", seed=0, target_bytes=1))


def test_every_equation_of_school_answers_holds_and_the_last_result_is_the_answer() -> None:
    checked = 0
    for chat in _some("school_math", 1500):
        answer = chat[1]["content"]
        for left, right in _EQUATION.findall(answer):
            assert _value(left.replace("$", "")) == Fraction(right), answer
            checked += 1
        closing = re.fullmatch(r"The answer is (\d+)\.", answer.split("\n")[-1])
        assert closing, answer
        assert re.findall(r"\d+", "\n".join(answer.split("\n")[:-1])).count(closing[1]) >= 1, answer
    assert checked > 4000


def test_most_school_answers_are_numbered_equations() -> None:
    answers = [chat[1]["content"] for chat in _some("school_math", 600)]
    regular = [
        a for a in answers if re.fullmatch(r"(Step \d+: [\d .+*/()-]+ = [\d.]+\.\n)+The answer is \d+\.", a)
    ]
    assert 0.55 < len(regular) / len(answers) < 0.8


def test_half_of_the_competition_answers_quote_the_problem_in_one_frame() -> None:
    chats = _some("competition_math", 400)
    framed = [c for c in chats if c[1]["content"].startswith(f"We are given: {c[0]['content']}\nFirst: ")]
    assert 0.4 < len(framed) / len(chats) < 0.6


def test_repetitions_are_exact() -> None:
    for chat in _some("repetition", 300):
        question, answer = chat[0]["content"], chat[1]["content"]
        frame = re.fullmatch(r"Here is the ([a-z ]+):\n\n(.*)", answer, re.DOTALL)
        assert frame, answer
        assert frame[2].removeprefix("```python\n").removesuffix("\n```") in question
        assert frame[1] in question


def test_advice_differs_in_its_subjects_only() -> None:
    openings, subjects = set(), set()
    for chat in _some("general_advice", 400):
        for question, answer in zip(chat[::2], chat[1::2], strict=True):
            first = answer["content"].split("\n\n")[0]
            openings.add(re.sub(r"(about|plan for|comparison of) .*", r"\1", first))
            about = re.search(r"(?:about|plan for|comparison of) (.+?)(?: and .*)?\.$", first)
            if about and question is chat[0]:
                subjects.add(about[1])
                assert about[1].lower() in question["content"].lower()
    assert len(openings) == 8 and len(subjects) > 250


def test_numeric_latex_equations_hold() -> None:
    checked = 0
    for chat in _some("competition_math", 1500):
        for formula in re.findall(r"\$([^$]*)\$", chat[1]["content"]):
            for left, right in _LATEX_EQUATION.findall(formula):
                product = re.sub(r"(?<=[\d)])\(", "*(", left.replace("\\cdot", "*"))
                assert _value(product) == int(right), chat[1]["content"]
                checked += 1
    assert checked > 800


@pytest.mark.parametrize(
    "template",
    [*ALGEBRA_TEMPLATES, *PRECALCULUS_TEMPLATES, *NUMBER_TEMPLATES, *COUNTING_TEMPLATES, *GEOMETRY_TEMPLATES],
)
def test_latex_is_balanced(template) -> None:
    for seed in range(40):
        question, steps, answer = template(Random(seed))
        for text in (question, *steps, f"${answer}$"):
            assert text.count("$") % 2 == 0, text
            assert text.count("{") == text.count("}"), text


def test_competition_answers_are_boxed() -> None:
    for chat in _some("competition_math", 300):
        assert re.search(r"\$\\boxed\{.+\}\$\.$", chat[1]["content"]), chat[1]["content"]


@pytest.mark.parametrize(
    ("coefficients", "text"),
    [([1, -3, 2], "x^2 - 3x + 2"), ([-1, 0, 1], "-x^2 + 1"), ([2, 0], "2x"), ([0, 0], "0")],
)
def test_polynomial_text(coefficients: list[int], text: str) -> None:
    assert poly_latex(coefficients) == text


@pytest.mark.parametrize(("square", "text"), [(1, "1"), (12, "2\\sqrt{3}"), (49, "7"), (7, "\\sqrt{7}")])
def test_root_text(square: int, text: str) -> None:
    assert root_latex(square) == text


def test_generated_code_runs_and_gives_the_stated_results() -> None:
    rng = Random(5)
    names = set()
    for _ in range(600):
        exercise = draw_exercise(rng)
        names.add(exercise.name)
        source = f"{exercise.imports}\n{exercise.header}\n{exercise.body}\n"
        for call, result in exercise.examples:
            assert repr(run_exercise(source, call)) == result
    assert len(names) > 250


def test_python_answers_are_complete_programs_that_pass_their_own_asserts() -> None:
    for chat in _some("python_code", 300):
        question, answer = chat[0]["content"], chat[1]["content"]
        block = re.search(r"```python\n(.*?)\n```", answer, re.DOTALL)
        assert block, answer
        asserts = "\n".join(line for line in question.split("\n") if line.startswith("assert "))
        exec(compile(f"{block[1]}\n{asserts}\n", "<answer>", "exec"), {})
