"""``python -m specpilot.forcing.make_probe --out FILE [--model FOLDER]``: the probe set of a checkpoint.

Texts are drawn from our generators, question and worked answer, and scored by the reference engine in judge mode.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from specpilot.engines.base import Engine
from specpilot.forcing.answer import Answer
from specpilot.forcing.probe import BUNDLED_PROBE, make_probe
from specpilot.forcing.prompts import audit_prompts
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.models.build import build_engine
from specpilot.models.folders import model_folders

__all__ = ["main", "probe_texts"]

_SEED = 1
_NUM_TEXTS, _NUM_TOKENS = 10, 64


def probe_texts(engine: Engine) -> list[Answer]:
    """Prompt and the first tokens of a text that follows it, which is another prompt's question."""
    prompts = audit_prompts(2 * _NUM_TEXTS, _SEED)
    texts = []
    for first, second in zip(prompts[:_NUM_TEXTS], prompts[_NUM_TEXTS:], strict=True):
        ids = engine.apply_chat_template([{"role": "user", "content": first.text}])
        output = engine.tokenize(second.text)[:_NUM_TOKENS]
        texts.append(Answer(first.request_id, tuple(ids), tuple(output), "length"))
    return texts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Default: the bundled model.")
    parser.add_argument("--out", type=Path, default=BUNDLED_PROBE)
    options = parser.parse_args(arguments)
    engine = build_engine(options.model, mode="judge", num_threads=1)
    texts = probe_texts(engine)
    name, folder, _ = model_folders(options.model)
    make_probe(name, texts, EngineScorer(engine), folder).write(options.out)


if __name__ == "__main__":
    main()
