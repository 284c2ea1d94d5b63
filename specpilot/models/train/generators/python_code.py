"""Small Python functions: complete a header with docstring, or write a function from one sentence."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.python_algorithms import ALGORITHMS
from specpilot.models.train.generators.python_pipelines import draw_pipeline
from specpilot.models.train.generators.python_spec import Exercise, Spec, realise
from specpilot.models.train.generators.python_structures import STRUCTURES
from specpilot.models.train.generators.wording import capital, conversation, pick

__all__ = ["draw_exercise", "sample"]

_FIXED: Final[tuple[Spec, ...]] = (*ALGORITHMS, *STRUCTURES)


def draw_exercise(rng: Random) -> Exercise:
    """A combined exercise or one of the fixed families."""
    return realise(rng, rng.choice(_FIXED) if rng.random() < 0.5 else draw_pipeline(rng))


def _docstring(rng: Random, exercise: Exercise) -> str:
    text = capital(exercise.task) + "."
    style = rng.randrange(4)
    if style == 0:
        shown = "".join(f"    >>> {call}\n    {result}\n" for call, result in exercise.examples)
        return f'    """{pick(rng, "", " ")}{text}\n\n{shown}    """'
    if style == 1:
        shown = "".join(f"    >>> {call}\n    {result}\n" for call, result in exercise.examples)
        return (
            f'    """\n    {text}\n\n    {pick(rng, "Examples:", "For example:", "Example:")}\n{shown}    """'
        )
    if style == 2:
        arrow = pick(rng, "==>", "->", "=>", "==", "returns", "should return")
        shown = "".join(f"    {call} {arrow} {result}\n" for call, result in exercise.examples)
        return (
            f'    """\n    {text}\n\n    {pick(rng, "Examples:", "For example:", "Example:")}\n{shown}    """'
        )
    shown = "".join(f"    * {call} = {result}\n" for call, result in exercise.examples)
    return f'    """Write a function to {exercise.task}.\n\n    {pick(rng, "Examples:", "For example:")}\n{shown}    """'


def _fence(code: str) -> str:
    return f"```python\n{code}\n```"


def _tests(exercise: Exercise) -> str:
    return "\n".join(f"assert {call} == {result}" for call, result in exercise.examples)


def _complete(rng: Random, exercise: Exercise) -> Chat:
    imports = exercise.imports + "\n\n" if exercise.imports else pick(rng, "", "\n")
    docstring = _docstring(rng, exercise)
    stub = f"{imports}{exercise.header}\n{docstring}\n"
    kept = f"{docstring}\n" if rng.random() < 0.5 else ""
    head = exercise.imports + "\n\n" if exercise.imports else ""
    answer = _fence(f"{head}{exercise.header}\n{kept}{exercise.body}")
    if rng.random() < 0.25:
        stub = (
            pick(
                rng,
                "Complete the following Python function.",
                "Please finish this function:",
                "Fill in the body of this function.",
            )
            + "\n\n"
            + stub
        )
    return conversation(stub, answer)


def _write(rng: Random, exercise: Exercise) -> Chat:
    question = f"{pick(rng, 'Write a function to', 'Write a function to', 'Write a python function to', 'Create a Python function to')} {exercise.task}."
    with_tests = rng.random() < 0.4
    if with_tests:
        question += f"\n{pick(rng, 'Your code should pass these tests:', 'Your code should satisfy the following tests:')}\n\n{_tests(exercise)}"
    head = exercise.imports + "\n\n" if exercise.imports else ""
    code = f"{head}{exercise.header}\n{exercise.body}"
    if not with_tests and rng.random() < 0.4:
        code += "\n\n\n" + _tests(exercise)
    answer = _fence(code)
    tail = rng.random()
    if tail < 0.35:
        call, result = exercise.examples[0]
        answer += pick(
            rng,
            f"\n\nFor example, `{call}` returns `{result}`.",
            f"\n\nThe function `{exercise.name}` can be used to {exercise.task}. For example, `{call}` gives `{result}`.",
            f"\n\nHere `{call}` evaluates to `{result}`.",
        )
    elif tail < 0.5:
        answer = (
            pick(
                rng,
                f"Here is a function to {exercise.task}:\n\n",
                "Here is the function:\n\n",
                f"You can use this function to {exercise.task}:\n\n",
            )
            + answer
        )
    return conversation(question, answer)


def sample(rng: Random) -> Chat:
    """One exercise as a chat; the code in the answer has been run."""
    exercise = draw_exercise(rng)
    return (_complete if rng.random() < 0.5 else _write)(rng, exercise)
