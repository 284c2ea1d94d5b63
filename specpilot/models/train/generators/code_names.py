"""Consistent new names for a function and its parameters in a prompt and its answer."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from random import Random

from specpilot.models.train.generators.lexicon import identifier

__all__ = ["rename_function"]

_KEPT = frozenset({"self", "cls", "a", "i", "args", "kwargs", "_"})


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.'\\]){re.escape(name)}(?![\w'])")


def _fresh(rng: Random, taken: set[str], length: int | None) -> str:
    while True:
        name = identifier(rng, length)
        if name not in taken and not keyword.iskeyword(name):
            taken.add(name)
            return name


def rename_function(rng: Random, prompt: str, code: str, function: str) -> tuple[str, str] | None:
    """New names for ``function`` and its parameters in both texts; None where the renaming is not certain.

    ``code`` is a module that defines ``function``; strings in it and the whole prompt are changed word by word, names
    in the code token by token, so that attributes and keyword arguments of other functions keep theirs.
    """
    tree = ast.parse(code)
    node = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None)
    if node is None or function.startswith("__") or any(isinstance(n, ast.JoinedStr) for n in ast.walk(tree)):
        return None
    arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    tokens = list(tokenize.generate_tokens(io.StringIO(code + "\n").readline))
    taken = {t.string for t in tokens if t.type == tokenize.NAME} | set(re.findall(r"\w+", prompt))
    new = {function: _fresh(rng, taken, None)}
    new |= {name: _fresh(rng, taken, rng.choice((1, 1, 2))) for name in arguments if name not in _KEPT}
    edits: list[tuple[int, int, int, str]] = []
    depth = 0
    header_open = True
    for index, token in enumerate(tokens):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
            if token.string == ":" and depth == 0:
                header_open = False
        if token.type != tokenize.NAME or token.string not in new:
            continue
        after = tokens[index + 1].string
        before = tokens[index - 1].string
        is_keyword_argument = after == "=" and depth > 0 and not header_open and before in "(,"
        if before != "." and not is_keyword_argument:
            edits.append((token.start[0], token.start[1], token.end[1], new[token.string]))
    lines = code.split("\n")
    for row, start, end, name in reversed(edits):
        lines[row - 1] = lines[row - 1][:start] + name + lines[row - 1][end:]
    changed = "\n".join(lines)
    docstring = ast.get_docstring(node, clean=False)
    if docstring:
        renamed = _rename_text(docstring, function, new)
        if changed.count(docstring) != 1 or prompt.count(docstring) != 1:
            return None
        changed = changed.replace(docstring, renamed)
    try:
        compile(changed, "<renamed>", "exec")
    except (SyntaxError, ValueError):
        return None
    if docstring and docstring in prompt:
        # The header of the prompt is the header of the code.
        head = prompt[: prompt.index(docstring)]
        tail = prompt[prompt.index(docstring) + len(docstring) :]
        for old, name in new.items():
            head = _word(old).sub(name, head)
        return head + renamed + tail, changed
    return _word(function).sub(new[function], prompt), changed


def _rename_text(text: str, function: str, new: dict[str, str]) -> str:
    """Parameters change in the prose before the first example only: example data may hold the same words."""
    examples = re.search(rf"\n[^\n]*(?:>>>|(?<![\w.]){re.escape(function)}\()", "\n" + text)
    cut = examples.start() if examples else len(text)
    prose, shown = text[:cut], text[cut:]
    for old, name in new.items():
        if old == function or len(old) > 1:
            prose = _word(old).sub(name, prose)
    return prose + _word(function).sub(new[function], shown)
