"""The suffix drafter in the engine: equal ids, steps that say what they drafted, and every model has it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specpilot.engines.base import Chunk, GenerateRequest, SamplingParams
from specpilot.errors import ConfigError
from specpilot.models import bundled_folder
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

COPY = (
    "Copy this list:\n\n- green lamp\n- wooden ladder\n- three silver spoons\n- garden hose\n- rain coat",
    "Return the following code without changes:\n\ndef merge_rows(left, right, limit=None):\n"
    '    """Join two lists of rows and keep the first ones.\n    """',
    "Copy this table:\n\n| city | winter |\n| --- | --- |\n| north | 12 |\n| harbor | 77 |",
)
OPEN = (
    "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?",
    "Tell me something about rivers. über 你好 🦉",
)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


def ask(engine: ReferenceEngine, prompt: str, drafter: str | None, **sampling: object) -> list[Chunk]:
    ids = engine.apply_chat_template([{"role": "user", "content": prompt}])
    params = SamplingParams(**{"max_new_tokens": 64, **sampling})  # type: ignore[arg-type]
    return list(engine.generate(GenerateRequest(ids, params, drafter)))


def tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


@pytest.mark.parametrize("prompt", [*COPY, *OPEN])
def test_ids_are_equal_with_and_without(engine: ReferenceEngine, prompt: str) -> None:
    plain, drafted = ask(engine, prompt, None), ask(engine, prompt, "suffix")
    assert tokens(plain) == tokens(drafted)
    assert plain[-1].finish_reason == drafted[-1].finish_reason


def test_a_copied_text_takes_far_fewer_steps(engine: ReferenceEngine) -> None:
    answers = [ask(engine, prompt, "suffix") for prompt in COPY]
    assert sum(len(tokens(chunks)) for chunks in answers) > 1.5 * sum(len(chunks) for chunks in answers)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_steps_say_how_much_they_drafted(engine: ReferenceEngine, temperature: float) -> None:
    chunks = ask(engine, COPY[0], "suffix", temperature=temperature, seed=3, ignore_eos=True)
    steps = [chunk.step for chunk in chunks[1:-1]]
    drafted = {step.num_drafted for step in steps if step is not None}
    assert 0 in drafted and max(drafted) > 1  # plain steps and speculative ones in one answer
    for chunk in chunks[1:-1]:
        step = chunk.step
        assert step is not None and 0 <= step.num_correct_drafts <= step.num_drafted <= 7
        assert len(chunk.token_ids) == step.num_correct_drafts + 1


def test_sampling_repeats_with_its_seed(engine: ReferenceEngine) -> None:
    def run(seed: int) -> list[int]:
        return tokens(ask(engine, COPY[0], "suffix", max_new_tokens=32, temperature=1.5, seed=seed))

    assert run(4) == run(4)
    assert len({tuple(run(seed)) for seed in range(4)}) > 1


def test_drafts_end_where_the_context_ends(engine: ReferenceEngine, tmp_path: Path) -> None:
    """In the middle of a copied text, where every step would draft more than there is room for."""
    prompt = engine.apply_chat_template([{"role": "user", "content": COPY[0]}])
    shutil.copytree(bundled_folder() / "target", tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    context = len(prompt) + 24
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": context}))
    small = build_engine(str(tmp_path / "model"), num_threads=1)
    request = GenerateRequest(prompt, SamplingParams(max_new_tokens=24, ignore_eos=True))
    plain, drafted = (list(small.generate(replace(request, drafter=name))) for name in (None, "suffix"))
    assert tokens(plain) == tokens(drafted) and len(tokens(drafted)) == 24
    last = drafted[-1].step
    assert last is not None and 0 < last.num_drafted < 7


def test_a_model_without_drafters_of_its_own_has_it_too(tmp_path: Path) -> None:
    shutil.copytree(bundled_folder() / "target", tmp_path / "model")
    described = build_engine(str(tmp_path / "model"), num_threads=1).describe()
    assert (described.drafters, described.default_drafter) == (("suffix",), "suffix")
    described = build_engine(str(tmp_path / "model"), num_threads=1, drafter="none").describe()
    assert (described.drafters, described.default_drafter) == (("suffix",), None)


def test_the_models_own_drafter_stays_the_default() -> None:
    described = build_engine(num_threads=1).describe()
    assert described.default_drafter == described.drafters[0] != "suffix" == described.drafters[-1]
    assert build_engine(num_threads=1, drafter="suffix").describe().default_drafter == "suffix"


def test_a_folder_of_that_name_is_refused(tmp_path: Path) -> None:
    shutil.copytree(bundled_folder() / "target", tmp_path / "target")
    shutil.copytree(bundled_folder() / "dflash2", tmp_path / "suffix")
    with pytest.raises(ConfigError, match="'suffix' belongs to the built-in drafter"):
        build_engine(str(tmp_path), num_threads=1)
