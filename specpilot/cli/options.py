"""Options that several verbs share, and the engine they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpilot.engines.base import NumericMode

if TYPE_CHECKING:
    from specpilot.engines.base import Engine

__all__ = [
    "Chat",
    "Drafter",
    "Json",
    "MaxTokens",
    "Mode",
    "Model",
    "Temperature",
    "Threads",
    "open_engine",
    "resolve_drafter",
]

Model = Annotated[
    Path | None, typer.Option(help="Folder of the target, or a GGUF file. Default: the bundled model.")
]
Mode = Annotated[NumericMode, typer.Option(help="Numeric mode: judge (batch invariant) or serve (fastest).")]
Drafter = Annotated[
    str | None, typer.Option(help="Drafter by name, 'none' for plain decoding. Default: the model's.")
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Tokens of an answer, at most.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
Chat = Annotated[
    bool, typer.Option("--chat/--raw", help="Through the chat template, or continue the text as it is.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the engine. Default: its choice.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def open_engine(
    model: Path | None, mode: NumericMode, num_threads: int | None, *, max_running: int = 1
) -> Engine:
    """The reference engine. Loaded here and not at import: --help must not wait for it."""
    from specpilot.models.build import build_engine

    folder = None if model is None else str(model)
    return build_engine(folder, mode=mode, num_threads=num_threads, max_running=max_running)


def resolve_drafter(engine: Engine, name: str | None) -> str | None:
    """The drafter of a request: the engine's default without a name, None for plain decoding."""
    if name is None:
        return engine.describe().default_drafter
    return None if name == "none" else name
