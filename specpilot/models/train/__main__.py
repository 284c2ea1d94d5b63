"""``python -m specpilot.models.train``: corpus, target, its answers, drafters - one phase after another.

Every phase leaves its result in ``--out`` and is skipped when the result is there, so a run that was stopped (or ran
into ``--time-limit-s``) goes on when started again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import torch
import typer
from torch import Tensor

from specpilot.models.train.answers import Answers, read_prompts, regenerate_answers
from specpilot.models.train.dflash2 import TrainDFlash2
from specpilot.models.train.draft_training import train_drafter
from specpilot.models.train.drafter import DraftBatch, TrainableDrafter
from specpilot.models.train.dspark import TrainDSpark
from specpilot.models.train.eagle3 import TrainEagle3
from specpilot.models.train.export import export_checkpoint
from specpilot.models.train.objectives import dflash2_losses, dspark_losses, eagle3_losses
from specpilot.models.train.pretrain import pretrain
from specpilot.models.train.recipe import BUNDLED
from specpilot.models.train.target import TrainTarget
from specpilot.models.train.vocabulary import Vocabulary

__all__ = ["Phase", "app", "corpus_arguments", "main"]

app = typer.Typer(add_completion=False)

_Drafter = TypeVar("_Drafter", bound=TrainableDrafter)


class Phase(StrEnum):
    """A phase of training, in order."""

    CORPUS = "corpus"
    TARGET = "target"
    ANSWERS = "answers"
    DFLASH2 = "dflash2"
    DSPARK = "dspark"
    EAGLE3 = "eagle3"
    ALL = "all"


def corpus_arguments(data: Path, docs: Path | None, exclude: Sequence[Path], out: Path) -> list[str]:
    """Command line of :mod:`specpilot.models.train.corpus`, without the program."""
    held_out = ["--exclude", *map(str, exclude)] if exclude else []
    sources = ["--docs", str(docs)] if docs else []
    return ["--data", str(data), "--out", str(out), *sources, *held_out]


@app.command()
def main(
    data: Annotated[
        Path, typer.Option(help="Folder with gsm8k_train.jsonl; read only when the corpus is not built yet.")
    ],
    out: Annotated[Path, typer.Option(help="Where every phase leaves its result.")],
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="JSON lines whose text must stay out of the corpus; may be given many times. Every set that the "
            "models will be measured on belongs here. Read only when the corpus is not built yet.",
        ),
    ] = None,
    phase: Annotated[Phase, typer.Option(help="One phase, or all in order.")] = Phase.ALL,
    docs: Annotated[
        Path | None,
        typer.Option(help="reST sources of the library documentation, where they are elsewhere."),
    ] = None,
    time_limit_s: Annotated[float, typer.Option(help="Stop, resumable, after this many seconds.")] = 520.0,
    pretrain_steps: Annotated[int, typer.Option(help="Batches of the target.")] = BUNDLED.pretrain_steps,
    draft_steps: Annotated[int, typer.Option(help="Batches of the drafter.")] = BUNDLED.draft_steps,
    fit: Annotated[
        bool, typer.Option(help="Shorten a training phase so that it ends within the time limit.")
    ] = False,
    max_prompts: Annotated[int, typer.Option(help="Prompts answered by the target for the drafter.")] = 65536,
    device: Annotated[
        str | None, typer.Option(help="Where to train.", show_default="cuda if there is one, else cpu")
    ] = None,
) -> None:
    """Train the bundled models."""
    begun = time.monotonic()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    recipe = replace(BUNDLED, pretrain_steps=pretrain_steps, draft_steps=draft_steps)
    wanted = tuple(Phase) if phase is Phase.ALL else (phase,)

    def time_left_s() -> float:
        return time_limit_s - (time.monotonic() - begun)

    def stop() -> NoReturn:
        typer.echo("time limit reached; run the same command again to go on", err=True)
        raise typer.Exit(3)

    corpus = out / "corpus"
    if Phase.CORPUS in wanted and not (corpus / "corpus.json").exists():
        subprocess.run(
            [
                sys.executable,
                "-m",
                "specpilot.models.train.corpus",
                *corpus_arguments(data, docs, exclude or [], corpus),
            ],
            check=True,
        )
    words = Vocabulary.load(corpus / "tokenizer")
    config = recipe.target_config(words.size, (words.turn_end, words.document_end))
    weights = out / "target.pt"
    if Phase.TARGET in wanted and not weights.exists():
        model = pretrain(
            config, corpus, out, end_id=words.document_end, steps=recipe.pretrain_steps, rows=recipe.pretrain_rows,
            length=recipe.pretrain_length, peak_lr=recipe.pretrain_lr, seed=recipe.seed,
            time_limit_s=time_left_s(), is_fitted=fit, device=device,
        )  # fmt: skip
        if model is None:
            stop()
        # Everything after this sees the weights as they are shipped.
        torch.save({name: tensor.bfloat16().cpu() for name, tensor in model.state_dict().items()}, weights)
        export_checkpoint(out / "target", config.to_json_dict(), model.state_dict(), corpus / "tokenizer")
    target = TrainTarget(config)
    if {Phase.ANSWERS, Phase.DFLASH2, Phase.DSPARK, Phase.EAGLE3} & set(wanted):
        saved = torch.load(weights, weights_only=True)
        target.load_state_dict({name: tensor.float() for name, tensor in saved.items()})
        target.to(device).requires_grad_(False)
    if Phase.ANSWERS in wanted and not (out / "answers.npz").exists():
        answers = regenerate_answers(
            target, read_prompts(corpus / "chat_prompts.npz")[:max_prompts], out / "answers.npz", end_id=words.turn_end,
            length=recipe.answer_length, max_new_tokens=recipe.max_new_tokens, greedy_share=recipe.greedy_share,
            temperature=recipe.temperature, passes=recipe.answer_passes, rows=recipe.generation_rows, seed=recipe.seed,
            time_limit_s=time_left_s() / 2, device=device,
        )  # fmt: skip
        lengths = (answers.ends - answers.begins).float()
        note = {
            "answers": len(lengths),
            "mean_tokens": float(lengths.mean()),
            "seconds": time.monotonic() - begun,
        }
        typer.echo(json.dumps(note))

    def train_and_export(
        name: Phase, drafter: _Drafter, losses_of: Callable[[_Drafter, DraftBatch], dict[str, Tensor]]
    ) -> None:
        if name not in wanted or (out / name).exists():
            return
        trained = train_drafter(
            drafter, losses_of, target, Answers.load(out / "answers.npz", device), out / f"{name}.jsonl",
            steps=recipe.draft_steps, sequences=recipe.draft_sequences, anchors=recipe.draft_anchors,
            peak_lr=recipe.draft_lr, seed=recipe.seed, time_limit_s=time_left_s(), is_fitted=fit, device=device,
        )  # fmt: skip
        if trained is None:
            stop()
        export_checkpoint(out / name, trained.config_dict(), trained.state_dict(), None)

    train_and_export(Phase.DFLASH2, TrainDFlash2(recipe.dflash2_shape(config, words.mask)), dflash2_losses)
    train_and_export(Phase.DSPARK, TrainDSpark(recipe.dspark_shape(config, words.mask)), dspark_losses)
    train_and_export(Phase.EAGLE3, TrainEagle3(recipe.eagle3_shape(config)), eagle3_losses)


if __name__ == "__main__":
    app()
