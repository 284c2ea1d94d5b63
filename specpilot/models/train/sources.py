"""Where training documents come from: the problem file, the standard library, its documentation, the generators."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from specpilot.errors import ConfigError
from specpilot.models.chat import Chat
from specpilot.models.train.generators import generate
from specpilot.models.train.generators.code_names import rename_function
from specpilot.models.train.generators.wording import conversation
from specpilot.models.train.generators.worked_problems import name_words, parse_problem, plain_answer, vary

__all__ = [
    "Document",
    "default_docs_folder",
    "default_library_folder",
    "documentation",
    "generated",
    "stdlib_chats",
    "stdlib_files",
    "word_problems",
]

# Variants of a problem with other numbers and names, and of a function with other identifiers.
_PROBLEM_VARIANTS: Final = 6
_FUNCTION_VARIANTS: Final = 2
# Tests and tools with their own data; encodings and topics are tables, not prose or programs.
_SKIPPED_FOLDERS: Final = frozenset(
    {"test", "tests", "idlelib", "site-packages", "dist-packages", "lib2to3", "encodings", "pydoc_data", "ensurepip",
     "__pycache__", "turtledemo"}
)  # fmt: skip
_MAX_FILE_BYTES: Final = 400_000
_MAX_FUNCTION_LINES: Final = 45
_MAX_DOCSTRING_CHARS: Final = 900


@dataclass(frozen=True)
class Document:
    """A plain text (``chat`` empty) or a conversation (``text`` empty) with the name of its source.

    ``family`` is common to the variants of one original, which go to the same side of the split.
    """

    source: str
    text: str = ""
    chat: tuple[tuple[str, str], ...] = ()
    family: str = ""

    @classmethod
    def of_chat(cls, source: str, chat: Chat, family: str = "") -> Document:
        return cls(
            source, chat=tuple((message["role"], message["content"]) for message in chat), family=family
        )

    @property
    def content(self) -> str:
        """All text of the document, for hashing and for finding overlaps."""
        return self.text or "\n".join(content for _, content in self.chat)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the content; it orders the corpus."""
        return hashlib.sha256(self.content.encode("utf-8", "surrogatepass")).digest()

    @property
    def split_digest(self) -> bytes:
        """SHA-256 that decides on which side of the split the document goes."""
        return hashlib.sha256((self.family or self.content).encode("utf-8", "surrogatepass")).digest()


def word_problems(path: Path, *, seed: int) -> Iterator[Document]:
    """Chats from a JSON-lines file with ``prompt`` and ``answer``: each problem once and variants of it.

    Answers are the equations between calculator marks in regular form; problems whose marks do not recompute are
    left out.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is missing; pass the folder that holds {path.name} with --data")
    records: list[tuple[str, str, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        record = json.loads(line)
        solution, mark, answer = str(record["answer"]).rpartition("####")
        if not mark:
            raise ConfigError(
                f"{path}:{number}: the answer has no '#### n' line; expected a worked solution with one"
            )
        records.append((str(record["prompt"]).strip(), solution, answer.strip()))
    names = name_words(prompt for prompt, _, _ in records)
    for prompt, solution, answer in records:
        problem = parse_problem(prompt, solution, answer)
        if problem is None:
            continue
        rng = Random(f"{prompt}:{seed}")
        pairs = [(prompt, plain_answer(problem)), *vary(rng, problem, _PROBLEM_VARIANTS, names)]
        for question, worked in pairs:
            yield Document.of_chat(path.stem, conversation(question, worked), family=prompt)


def default_library_folder() -> Path:
    """The standard library of the running interpreter."""
    return Path(sysconfig.get_paths()["stdlib"])


def stdlib_files(root: Path) -> Iterator[Document]:
    """Python modules under a library folder, in path order; tests, tools and tables are left out."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if _SKIPPED_FOLDERS.intersection(parts[:-1]) or parts[0].startswith("config-"):
            continue
        raw = path.read_bytes()
        if not 200 <= len(raw) <= _MAX_FILE_BYTES:
            continue
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            continue  # a few modules declare another encoding
        yield Document("stdlib_code", text=text.strip() + "\n")


def stdlib_chats(root: Path, *, seed: int) -> Iterator[Document]:
    """'Complete this function' chats from library functions that have a docstring, each also with other names."""
    for document in stdlib_files(root):
        lines = document.text.split("\n")
        for node in ast.walk(ast.parse(document.text)):
            if not isinstance(node, ast.FunctionDef) or node.decorator_list:
                continue
            texts = _completion(lines, node)
            if texts is None:
                continue
            rng = Random(f"{texts[1]}:{seed}")
            variants = [rename_function(rng, *texts, node.name) for _ in range(_FUNCTION_VARIANTS)]
            for stub, code in (texts, *(v for v in variants if v)):
                yield Document.of_chat(
                    "stdlib_functions", conversation(stub, f"```python\n{code}\n```"), family=texts[1]
                )


def _completion(lines: list[str], node: ast.FunctionDef) -> tuple[str, str] | None:
    """Header with docstring, and the whole function."""
    docstring = ast.get_docstring(node)
    if not docstring or len(docstring) > _MAX_DOCSTRING_CHARS or len(node.body) < 2:
        return None
    end = node.end_lineno or node.lineno
    first = node.body[1].lineno
    # Comments between the docstring and the first statement belong to the answer.
    stub_end = node.body[0].end_lineno or first - 1
    if end - stub_end > _MAX_FUNCTION_LINES or "\t" in "".join(lines[node.lineno - 1 : end]):
        return None
    whole = textwrap.dedent("\n".join(lines[node.lineno - 1 : end])).rstrip()
    try:
        ast.parse(whole)
    except SyntaxError:
        return None  # a string with lines left of the function keeps it from being moved to the margin
    stub = "\n".join(whole.split("\n")[: stub_end - node.lineno + 1])
    return stub + "\n", whole


def default_docs_folder() -> Path:
    """Where Debian's ``pythonX.Y-doc`` keeps the documentation sources of the running interpreter."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Path(f"/usr/share/doc/python{version}/html/_sources")


def documentation(folder: Path) -> Iterator[Document]:
    """reStructuredText files of a CPython documentation tree, in path order."""
    for path in sorted(folder.rglob("*.rst*")):
        text = path.read_text(encoding="utf-8")
        # Change logs are lists of ticket numbers.
        if path.parts[-2] != "changelog" and "changelog" not in path.name and len(text) >= 400:
            yield Document("python_docs", text=text.strip() + "\n")


def generated(kind: str, *, seed: int, target_bytes: int) -> Iterator[Document]:
    """Documents of one generator kind."""
    for chat in generate(kind, seed=seed, target_bytes=target_bytes):
        yield Document.of_chat(kind, chat)
