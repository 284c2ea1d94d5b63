"""What a generated Python exercise is made of, and how example calls for it are drawn and run."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

__all__ = ["Exercise", "Spec", "draw_input", "realise", "run_exercise"]

_NAMES: Final = {
    "XS": ("numbers", "nums", "lst", "values", "arr", "items", "data"),
    "YS": ("other", "second", "others", "list2", "right"),
    "OUT": ("result", "output", "res", "answer", "total_list"),
    "ACC": ("total", "result", "acc", "answer", "res"),
    "ITEM": ("x", "num", "value", "item", "n"),
    "TEXT": ("text", "s", "string", "sentence", "word", "phrase"),
    "CH": ("ch", "char", "c", "letter"),
    "WORDS": ("words", "strings", "names", "tokens", "parts"),
    "WORD": ("word", "w", "entry", "name"),
    "TABLE": ("table", "mapping", "d", "scores", "counts_by_key"),
    "GRID": ("matrix", "grid", "rows", "m"),
    "NUM": ("n", "number", "num", "limit"),
}

_WORDS: Final = (
    "apple banana river stone level cloud radar table garden window summer planet noon silver forest kayak letter "
    "music orange pepper python refer rocket sunny tiger umbrella violet winter yellow zebra code data loop list "
    "green mouse paper light chair dance eagle frog grape house island juice kite lemon moon night ocean pearl"
).split()


@dataclass(frozen=True)
class Spec:
    """A family of exercises.

    ``body`` is indented source that may use the placeholders of the name table (``XS``, ``OUT``, ...) and ``K`` for
    a small constant; ``inputs`` names how each argument is drawn; ``tasks`` complete "Write a function to ...".
    """

    names: tuple[str, ...]
    params: tuple[str, ...]
    inputs: tuple[str, ...]
    types: tuple[str, ...]
    returns: str
    tasks: tuple[str, ...]
    body: tuple[str, ...]
    constants: tuple[Any, ...] = ()
    imports: str = ""


@dataclass(frozen=True)
class Exercise:
    """One concrete exercise: source text and example calls with their true results."""

    name: str
    header: str
    task: str
    body: str
    imports: str
    examples: tuple[tuple[str, str], ...]  # (call, repr of the result)


def draw_input(rng: Random, kind: str) -> Any:
    """Draw an argument value of the named kind."""
    if kind == "ints":
        return [rng.randint(-9, 20) for _ in range(rng.randint(3, 7))]
    if kind == "naturals":
        return [rng.randint(1, 30) for _ in range(rng.randint(3, 7))]
    if kind == "distinct":
        return rng.sample(range(1, 40), rng.randint(4, 7))
    if kind == "sorted":
        return sorted(rng.sample(range(1, 40), rng.randint(4, 7)))
    if kind == "repeats":
        return [rng.randint(1, 5) for _ in range(rng.randint(5, 9))]
    if kind == "n":
        return rng.randint(1, 30)
    if kind == "small":
        return rng.randint(1, 9)
    if kind == "big":
        return rng.randint(10, 99999)
    if kind == "index":
        return rng.randint(1, 3)
    if kind == "year":
        return rng.choice((1900, 1996, 2000, 2023, 2024, 2100))
    if kind == "word":
        return rng.choice(_WORDS)
    if kind == "title":
        return " ".join(rng.choice((w, w.capitalize())) for w in rng.sample(_WORDS, rng.randint(2, 4)))
    if kind == "mixed":
        return "".join(
            rng.choice((rng.choice("abcdeXYZ"), rng.choice("0123456789"), " "))
            for _ in range(rng.randint(6, 12))
        )
    if kind == "words":
        return rng.sample(_WORDS, rng.randint(3, 5))
    if kind == "letter":
        return rng.choice("aeiorstln")
    if kind == "brackets":
        return "".join(rng.choice("()") for _ in range(rng.randint(2, 8)))
    if kind == "bits":
        return "".join(rng.choice("01") for _ in range(rng.randint(3, 8)))
    if kind == "runs":
        return "".join(rng.choice("abc") * rng.randint(1, 3) for _ in range(rng.randint(2, 4)))
    if kind == "matrix":
        width = rng.randint(2, 3)
        return [[rng.randint(0, 9) for _ in range(width)] for _ in range(rng.randint(2, 3))]
    if kind == "square":
        width = rng.randint(2, 3)
        return [[rng.randint(0, 9) for _ in range(width)] for _ in range(width)]
    if kind == "dict":
        return {w: rng.randint(1, 20) for w in rng.sample(_WORDS, rng.randint(2, 4))}
    if kind == "pairs":
        return [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(rng.randint(2, 4))]
    if kind == "tuple":
        return tuple(rng.randint(0, 12) for _ in range(rng.randint(3, 6)))
    if kind == "zeros":
        return [rng.choice((0, 0, rng.randint(1, 9))) for _ in range(rng.randint(4, 8))]
    if kind == "triple":
        return [rng.randint(-5, 9) for _ in range(3)]
    if kind == "base_arg":
        return rng.randint(2, 9)
    if kind == "percent":
        return rng.randint(40, 100)
    if kind == "high_arg":
        return rng.randint(10, 25)
    raise ValueError(f"unknown input kind {kind!r}; add it to draw_input")


def _fill(text: str, names: dict[str, str]) -> str:
    out: list[str] = []
    word = ""
    for char in text + "\0":
        if char.isalnum() or char == "_":
            word += char
            continue
        out.append(names.get(word, word))
        out.append(char)
        word = ""
    return "".join(out)[:-1]


def run_exercise(source: str, call: str) -> Any:
    """Execute generated source and evaluate one call; only ever used on text written by this package."""
    space: dict[str, Any] = {}
    exec(compile(source, "<exercise>", "exec"), space)
    return eval(call, space)


def realise(rng: Random, spec: Spec) -> Exercise:
    """Choose names, a constant, a phrasing and a body, and compute example results by running the code."""
    chosen: dict[str, str] = {}
    for key, options in _NAMES.items():
        free = [option for option in options if option not in chosen.values()]
        chosen[key] = rng.choice(free)
    if spec.constants:
        chosen["K"] = str(rng.choice(spec.constants))
    name = _fill(rng.choice(spec.names).replace("_K", "_" + chosen.get("K", "")), chosen)
    if rng.random() < 0.5 and spec.types:
        typed = [f"{p}: {t}" for p, t in zip(spec.params, spec.types, strict=True)]
        header = f"def {name}({', '.join(typed)}) -> {spec.returns}:"
    else:
        header = f"def {name}({', '.join(spec.params)}):"
    header = _fill(header, chosen)
    body = _fill(rng.choice(spec.body).strip("\n"), chosen)
    task = _fill(rng.choice(spec.tasks), chosen)
    imports = spec.imports
    if "List[" in header:
        imports = "from typing import List\n" + imports
    source = f"{imports}\n\n{header}\n{body}\n"
    examples = []
    space: dict[str, Any] = {}
    exec(compile(source, "<exercise>", "exec"), space)
    for _ in range(rng.randint(2, 3)):
        arguments = ", ".join(repr(draw_input(rng, kind)) for kind in spec.inputs)
        call = f"{name}({arguments})"
        examples.append((call, repr(eval(call, space))))
    return Exercise(name, header, task, body, imports, tuple(dict.fromkeys(examples)))
