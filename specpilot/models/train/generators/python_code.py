"""Small Python functions: complete a header with docstring, or write a function from one sentence."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.code_names import rename_function
from specpilot.models.train.generators.python_algorithms import ALGORITHMS
from specpilot.models.train.generators.python_pipelines import draw_pipeline
from specpilot.models.train.generators.python_spec import Exercise, Spec, realise
from specpilot.models.train.generators.python_structures import STRUCTURES
from specpilot.models.train.generators.wording import capital, conversation, pick

__all__ = ["draw_exercise", "sample"]

_FIXED: Final[tuple[Spec, ...]] = (*ALGORITHMS, *STRUCTURES)
_RENAMED_SHARE: Final = 0.75


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
    imports = exercise.imports + "\n\n" if exercise.imports else ""
    docstring = _docstring(rng, exercise)
    stub = f"{imports}{exercise.header}\n{docstring}\n"
    code = f"{stub}{exercise.body}"
    if rng.random() < _RENAMED_SHARE:
        stub, code = rename_function(rng, stub, code, exercise.name) or (stub, code)
    prompt = pick(rng, "", "\n") + stub
    if rng.random() < 0.1:
        prompt = (
            pick(
                rng,
                "Complete the following Python function.",
                "Please finish this function:",
                "Fill in the body of this function.",
            )
            + f"\n\n{stub}"
        )
    return conversation(prompt, _fence(code))


def _write(rng: Random, exercise: Exercise) -> Chat:
    ask = pick(
        rng,
        "Write a function to",
        "Write a function to",
        "Write a python function to",
        "Create a Python function to",
    )
    question = f"{ask} {exercise.task}."
    imports = exercise.imports + "\n\n" if exercise.imports else ""
    code = f"{imports}{exercise.header}\n{exercise.body}"
    if rng.random() < 0.5:
        question += f"\n{pick(rng, 'Your code should pass these tests:', 'Your code should satisfy the following tests:')}\n\n{_tests(exercise)}"
        if rng.random() < _RENAMED_SHARE:
            question, code = rename_function(rng, question, code, exercise.name) or (question, code)
    return conversation(question, _fence(code))


def sample(rng: Random) -> Chat:
    """One exercise as a chat; the code in the answer has been run."""
    exercise = draw_exercise(rng)
    return (_complete if rng.random() < 0.65 else _write)(rng, exercise)
