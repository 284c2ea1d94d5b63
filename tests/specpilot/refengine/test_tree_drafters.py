"""Drafters that draft otherwise for trees, in the engine: the tokens are the target's, and trees save steps."""

from __future__ import annotations

import pytest

from specpilot.engines.base import Chunk, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

PROMPTS = (
    "Copy this list:\n\n- green lamp\n- wooden ladder\n- three silver spoons\n- garden hose\n- rain coat",
    "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?",
)
TREE = Mechanisms("best_first", num_nodes=16)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


def ask(
    engine: ReferenceEngine, prompt: str, drafter: str | None, mechanisms: Mechanisms = STOCK
) -> tuple[list[int], int]:
    """Answer, and the verify steps it took."""
    ids = engine.apply_chat_template([{"role": "user", "content": prompt}])
    params = SamplingParams(max_new_tokens=48)
    chunks: list[Chunk] = list(engine.generate(GenerateRequest(ids, params, drafter, mechanisms=mechanisms)))
    steps = [chunk.step for chunk in chunks if chunk.step is not None]
    assert all(step.num_drafted < (mechanisms.num_nodes or 8) for step in steps)
    return [token for chunk in chunks for token in chunk.token_ids], len(steps)


@pytest.mark.parametrize("drafter", ["eagle3", "dflash2+suffix", "dspark+suffix", "eagle3+suffix"])
def test_trees_give_the_target_s_tokens_in_fewer_steps(engine: ReferenceEngine, drafter: str) -> None:
    num_steps = dict.fromkeys(("chain", "tree"), 0)
    for prompt in PROMPTS:
        plain, _ = ask(engine, prompt, None)
        for name, mechanisms in (("chain", STOCK), ("tree", TREE)):
            answer, steps = ask(engine, prompt, drafter, mechanisms)
            assert answer == plain
            num_steps[name] += steps
    assert num_steps["tree"] < num_steps["chain"]


@pytest.mark.parametrize("builder", ["ddtree", "eagle2", "sequoia"])
def test_baselines_take_lattices_with_a_token_in_several_columns(
    engine: ReferenceEngine, builder: str
) -> None:
    plain, _ = ask(engine, PROMPTS[0], None)
    mechanisms = Mechanisms(builder, num_nodes=16)  # type: ignore[arg-type]
    assert ask(engine, PROMPTS[0], "eagle3+suffix", mechanisms)[0] == plain


def test_two_levels_rewind_both_drafters(engine: ReferenceEngine) -> None:
    for prompt in PROMPTS:
        plain, _ = ask(engine, prompt, None)
        mechanisms = Mechanisms("best_first", num_nodes=16, q_weights="w12_view")
        assert ask(engine, prompt, "eagle3+suffix", mechanisms)[0] == plain
