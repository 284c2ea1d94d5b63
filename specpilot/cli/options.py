"""Options that several verbs share, and the engine they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpilot.engines.base import NumericMode
from specpilot.engines.mechanisms import (
    MAX_TREE_NODES,
    BatchMechanisms,
    Builder,
    GdnForm,
    Mechanisms,
    QWeights,
)

if TYPE_CHECKING:
    from specpilot.engines.base import Engine

__all__ = [
    "BuilderName",
    "CertifiedHeadFlag",
    "Chat",
    "CostAware",
    "Drafter",
    "DrafterBlocks",
    "GdnFormName",
    "Json",
    "MaxTokens",
    "Mode",
    "Model",
    "NodeBudget",
    "Nodes",
    "Positions",
    "PromptRows",
    "QGateFlag",
    "QWeightsName",
    "Temperature",
    "Threads",
    "WholePromptRows",
    "batch_of",
    "mechanisms_of",
    "named_path",
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

# Mechanisms of a request; specpilot.engines.mechanisms says what they mean.
BuilderName = Annotated[
    Builder, typer.Option("--builder", help="Verify the drafter's chain, or a tree of this builder.")
]
Nodes = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_TREE_NODES, help="Rows of a verify step, root included. Default: the block."),
]
Positions = Annotated[
    int | None, typer.Option(min=1, help="Drafted positions of a step. Default: as the drafter was trained.")
]
CostAware = Annotated[
    bool, typer.Option("--cost-aware", help="Stop a tree where more nodes cost more than they bring.")
]
GdnFormName = Annotated[
    GdnForm,
    typer.Option("--gdn-form", help="Gated DeltaNet layers of a tree: path (the bits of chains) or wy."),
]
QWeightsName = Annotated[
    QWeights | None,
    typer.Option(
        "--q-weights", help="Two-level verification: the low-precision copy that checks a first tree."
    ),
]
QGateFlag = Annotated[
    bool, typer.Option("--q-gate", help="Leave the pass over the copy out where it has not paid lately.")
]
CertifiedHeadFlag = Annotated[
    bool,
    typer.Option(
        "--certified-head", help="Greedy tokens from an INT8 screen of the LM head, rescored exactly."
    ),
]

# How an engine spends rows over the requests of a step.
NodeBudget = Annotated[
    int | None,
    typer.Option(min=1, help="Nodes that all best_first trees of a step share, roots included."),
]
DrafterBlocks = Annotated[
    bool,
    typer.Option("--drafter-blocks", help="Draft 16, 12 or 8 rows by recent acceptance and confidence."),
]
WholePromptRows = Annotated[
    int, typer.Option(min=0, help="Prompts of up to so many tokens enter a step whole. 0: never.")
]
PromptRows = Annotated[
    int | None,
    typer.Option(min=1, help="Prompt rows of a step, all requests together. Default: the engine's."),
]


def mechanisms_of(
    builder: Builder = "chain",
    nodes: int | None = None,
    positions: int | None = None,
    cost_aware: bool = False,
    gdn_form: GdnForm = "path",
    q_weights: QWeights | None = None,
    q_gate: bool = False,
    certified_head: bool = False,
) -> Mechanisms:
    """What the mechanism options of a verb come to."""
    return Mechanisms(builder, nodes, positions, cost_aware, gdn_form, q_weights, q_gate, certified_head)


def batch_of(
    node_budget: int | None, drafter_blocks: bool, whole_prompt_rows: int, prompt_rows: int | None
) -> BatchMechanisms:
    """What the batch options of a verb come to."""
    return BatchMechanisms(node_budget, drafter_blocks, whole_prompt_rows, prompt_rows)


def open_engine(
    model: Path | None,
    mode: NumericMode,
    num_threads: int | None,
    *,
    max_running: int = 1,
    batch: BatchMechanisms | None = None,
    has_step_costs: bool = False,
) -> Engine:
    """The reference engine. Loaded here and not at import: --help must not wait for it."""
    from specpilot.models.build import build_engine

    folder = None if model is None else str(model)
    return build_engine(
        folder,
        mode=mode,
        num_threads=num_threads,
        max_running=max_running,
        batch=batch,
        has_step_costs=has_step_costs,
    )


def resolve_drafter(engine: Engine, name: str | None) -> str | None:
    """The drafter of a request: the engine's default without a name, None for plain decoding."""
    if name is None:
        return engine.describe().default_drafter
    return None if name == "none" else name


def named_path(text: str) -> Path:
    """A path that was given; an empty text, of a shell variable without a value, would be the current folder."""
    if not text:
        raise typer.BadParameter("got an empty path, expected a file or folder; '.' is the current one")
    return Path(text)
