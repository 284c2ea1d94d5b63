"""Requests to repeat something exactly, answered in one fixed frame."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.lexicon import identifier, lexicon
from specpilot.models.train.generators.wording import MEN, WOMEN, conversation, join_words, pick

__all__ = ["sample"]

_ASKS: Final = (
    "Repeat this {what} exactly", "Please repeat the following {what}", "Copy this {what}", "Write this {what} again",
    "Say this {what} back to me", "Quote the {what} below", "Return the following {what} without changes",
    "Can you repeat this {what} for me", "I want you to copy the {what}", "Give me this {what} back word for word",
)  # fmt: skip


def _words(rng: Random) -> tuple[str, str]:
    words = lexicon().words
    return "list of words", ", ".join(rng.choices(words, k=rng.randint(3, 12)))


def _random_sentence(rng: Random) -> tuple[str, str]:
    words = rng.choices(lexicon().words, k=rng.randint(5, 16))
    name = pick(rng, *WOMEN, *MEN)
    words[0] = words[0].capitalize()
    words.insert(rng.randint(1, len(words)), name)
    return "sentence", " ".join(words) + pick(rng, ".", ".", "?", "!")


def _library_sentence(rng: Random) -> tuple[str, str]:
    return "text", " ".join(rng.sample(lexicon().sentences, rng.randint(1, 2)))


def _list(rng: Random) -> tuple[str, str]:
    mark = pick(rng, "- ", "* ", "")
    rows = [" ".join(rng.choices(lexicon().words, k=rng.randint(1, 4))) for _ in range(rng.randint(3, 7))]
    return "list", "\n".join(mark + row if mark else f"{k}. {row}" for k, row in enumerate(rows, start=1))


def _table(rng: Random) -> tuple[str, str]:
    width = rng.randint(2, 4)
    header = rng.choices(lexicon().nouns, k=width)
    rows = [
        [rng.choice(lexicon().words)] + [str(rng.randint(0, 999)) for _ in range(width - 1)]
        for _ in range(rng.randint(2, 4))
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * width, *rows)]
    return "table", "\n".join(lines)


def _header(rng: Random) -> tuple[str, str]:
    names = [identifier(rng, rng.choice((1, 2))) for _ in range(rng.randint(1, 4))]
    typed = [n + pick(rng, "", "", ": int", ": str", ": List[int]", "=None") for n in names]
    returns = pick(rng, "", "", " -> int", " -> str", " -> bool", " -> List[str]")
    task = " ".join(rng.choices(lexicon().words, k=rng.randint(4, 10)))
    return (
        "code",
        f'def {identifier(rng)}({", ".join(typed)}){returns}:\n    """{task.capitalize()}.\n    """',
    )


def _numbers(rng: Random) -> tuple[str, str]:
    count = rng.randint(3, 10)
    return "list of numbers", ", ".join(str(rng.randint(0, 10 ** rng.randint(1, 5))) for _ in range(count))


def _names(rng: Random) -> tuple[str, str]:
    return "list of names", join_words(rng.sample((*WOMEN, *MEN), rng.randint(3, 7)))


_PAYLOADS: Final = (
    _words, _random_sentence, _random_sentence, _library_sentence, _list, _table, _header, _header, _numbers, _names,
)  # fmt: skip


def sample(rng: Random) -> Chat:
    """One request; the answer is ``Here is the WHAT:`` and the exact text, code in a fence."""
    what, text = rng.choice(_PAYLOADS)(rng)
    ask = pick(rng, *_ASKS).format(what=what)
    shown = f"```python\n{text}\n```" if what == "code" else text
    question = f"{text}\n\n{ask}." if rng.random() < 0.2 else f"{ask}{pick(rng, ':', '.', ':')}\n\n{text}"
    return conversation(question, f"Here is the {what}:\n\n{shown}")
