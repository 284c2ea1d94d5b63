"""``python -m specpilot.models.train``: corpus, target, its answers, drafter - one phase after another.

Every phase leaves its result in ``--out`` and is skipped when the result is there, so a run that was stopped (or ran
into ``--time-limit-s``) goes on when started again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from specpilot.models.train.answers import Answers, read_prompts, regenerate_answers
from specpilot.models.train.draft_training import train_dflash2
from specpilot.models.train.export import export_checkpoint
from specpilot.models.train.pretrain import pretrain
from specpilot.models.train.recipe import BUNDLED
from specpilot.models.train.target import TrainTarget
from specpilot.models.train.vocabulary import Vocabulary

__all__ = ["app", "corpus_arguments", "main"]

app = typer.Typer(add_completion=False)


def corpus_arguments(data: Path, exclude: Sequence[Path], out: Path) -> list[str]:
    """Command line of :mod:`specpilot.models.train.corpus`, without the program."""
    held_out = ["--exclude", *map(str, exclude)] if exclude else []
    return ["--data", str(data), "--out", str(out), *held_out]


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
    phase: Annotated[str, typer.Option(help="corpus, target, answers, dflash2 or all.")] = "all",
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
    wanted = ("corpus", "target", "answers", "dflash2") if phase == "all" else (phase,)

    def time_left_s() -> float:
        return time_limit_s - (time.monotonic() - begun)

    def stop() -> None:
        typer.echo("time limit reached; run the same command again to go on", err=True)
        raise typer.Exit(3)

    corpus = out / "corpus"
    if "corpus" in wanted and not (corpus / "corpus.json").exists():
        subprocess.run(
            [
                sys.executable,
                "-m",
                "specpilot.models.train.corpus",
                *corpus_arguments(data, exclude or [], corpus),
            ],
            check=True,
        )
    words = Vocabulary.load(corpus / "tokenizer")
    config = recipe.target_config(words.size, (words.turn_end, words.document_end))
    weights = out / "target.pt"
    if "target" in wanted and not weights.exists():
        model = pretrain(
            config, corpus, out, end_id=words.document_end, steps=recipe.pretrain_steps, rows=recipe.pretrain_rows,
            length=recipe.pretrain_length, peak_lr=recipe.pretrain_lr, seed=recipe.seed,
            time_limit_s=time_left_s(), is_fitted=fit, device=device,
        )  # fmt: skip
        if model is None:
            stop()
            return
        # Everything after this sees the weights as they are shipped.
        torch.save({name: tensor.bfloat16().cpu() for name, tensor in model.state_dict().items()}, weights)
        export_checkpoint(out / "target", config.to_json_dict(), model.state_dict(), corpus / "tokenizer")
    target = TrainTarget(config)
    if "answers" in wanted or "dflash2" in wanted:
        saved = torch.load(weights, weights_only=True)
        target.load_state_dict({name: tensor.float() for name, tensor in saved.items()})
        target.to(device).requires_grad_(False)
    if "answers" in wanted and not (out / "answers.npz").exists():
        answers = regenerate_answers(
            target, read_prompts(corpus / "chat_prompts.npz")[:max_prompts], out / "answers.npz", end_id=words.turn_end,
            length=recipe.answer_length, max_new_tokens=recipe.max_new_tokens, greedy_share=recipe.greedy_share,
            temperature=recipe.temperature, rows=recipe.generation_rows, seed=recipe.seed,
            time_limit_s=time_left_s() / 2, device=device,
        )  # fmt: skip
        lengths = (answers.ends - answers.begins).float()
        note = {
            "answers": len(lengths),
            "mean_tokens": float(lengths.mean()),
            "seconds": time.monotonic() - begun,
        }
        typer.echo(json.dumps(note))
    if "dflash2" in wanted and not (out / "dflash2").exists():
        shape = recipe.drafter_shape(config, words.mask)
        drafter = train_dflash2(
            shape, target, Answers.load(out / "answers.npz", device), out, steps=recipe.draft_steps,
            sequences=recipe.draft_sequences, anchors=recipe.draft_anchors, peak_lr=recipe.draft_lr, seed=recipe.seed,
            time_limit_s=time_left_s(), is_fitted=fit, device=device,
        )  # fmt: skip
        if drafter is None:
            stop()
            return
        export_checkpoint(out / "dflash2", shape.config_dict(), drafter.state_dict(), None)


if __name__ == "__main__":
    app()
