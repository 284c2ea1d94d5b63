"""The probe's DSpark lattice against the reference drafter's, with the same weights in the place of SGLang's head."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import specpilot.bench.two_engines as two_engines
from specpilot.models.build import build_engine
from specpilot.refengine.dspark import DSparkDrafter


class Head(nn.Module):
    """What the probe uses of SGLang's ``VanillaMarkov``."""

    def __init__(self, w1: Tensor, w2: Tensor) -> None:
        super().__init__()
        self.w1, self.w2 = w1, w2

    def compute_step_bias(self, token_ids: Tensor, hidden_states: None) -> Tensor:
        return self.w1[token_ids] @ self.w2.T


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    path = Path(two_engines.__file__).parent / "probe" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("probe_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("is_right", [True, False])
def test_the_probes_lattice_is_the_drafters(probe: ModuleType, is_right: bool) -> None:
    engine = build_engine(mode="judge")
    drafter = engine.drafters["dspark"]
    assert isinstance(drafter, DSparkDrafter)
    prompt = torch.tensor(engine.tokenize("Step 1: 3 * 4 = 12.\nStep 2: 12 + 5 ="))
    target_state = engine.target.new_state(64)
    taps = engine.target.forward(prompt[:-1], target_state, taps=drafter.target_taps).taps
    state = drafter.new_state(64)
    drafter.append_context(state, prompt[:-1], taps)
    anchor = int(prompt[-1])
    draft = drafter.propose(state, anchor)
    base = engine.target.logits(
        torch.from_numpy(drafter.block_hidden([state], [anchor], [len(draft.token_ids)]))
    )
    markov = drafter._markov
    w1, w2 = torch.from_numpy(markov._w1), torch.from_numpy(markov._w2)
    # The negative control: a head with its two tables exchanged says something else.
    head = Head(w1, w2) if is_right else Head(w2, w1)
    found = probe._dspark_lattice(head, base, torch.tensor([anchor]), draft.token_ids)
    ours = {
        (depth, int(draft.lattice.candidate_ids[depth - 1, p]) if depth else anchor, int(token)): float(score)
        for depth, (ids, edges) in enumerate(
            zip(draft.lattice.candidate_ids, draft.lattice.edge_scores, strict=True)
        )
        for p in range(len(ids))
        for token, score in zip(ids, edges[p], strict=True)
    }
    theirs = {
        (depth, found["candidate_ids"][depth - 1][p] if depth else anchor, token): score
        for depth, (ids, edges) in enumerate(zip(found["candidate_ids"], found["edge_scores"], strict=True))
        for p in range(len(ids))
        for token, score in zip(ids, edges[p], strict=True)
    }
    is_equal = ours.keys() == theirs.keys() and all(abs(ours[key] - theirs[key]) < 1e-3 for key in ours)
    assert is_equal == is_right
    assert found["anchor"] == anchor and found["chain"] == draft.token_ids.tolist()
