"""Injected faults are real, and differ from stock by themselves alone."""

from __future__ import annotations

import ast

import pytest
import torch

from specpilot.errors import ConfigError
from specpilot.forcing import Rules, score_arm
from specpilot.forcing.faults import FAULTS, fault_named
from specpilot.forcing.faults.catalogue import ROUNDED, TREE, Fault
from specpilot.forcing.faults.run import run_fault
from specpilot.forcing.faults.weights import MATRIX, flip_bit
from tests.source_tree import find_modules

RULES = Rules(delta=0.125, min_tokens=300)
NUM_PROMPTS, MAX_TOKENS = 4, 40


@pytest.fixture(scope="module")
def prompts(stock):
    return [(answer.request_id, answer.prompt_ids) for answer in stock[:NUM_PROMPTS]]


def mismatches(fault, prompts, scorer):
    answers = run_fault(fault, prompts, MAX_TOKENS, concurrency=4)
    return int(score_arm(answers, scorer, RULES).counts.mismatches.sum())


@pytest.mark.parametrize(
    "fault",
    [
        fault_named("accept_off_by_one"),
        fault_named("sibling_state"),
        fault_named("stale_conv"),
        Fault("bias", "", 8, bias=dict.fromkeys(range(0, 4096, 7), 8.0)),
        Fault("hot", "", 2, temperature=2.0),
        fault_named("w12_exponent_bit"),
    ],
    ids=lambda fault: fault.name,
)
def test_a_fault_changes_tokens(fault, prompts, scorer):
    assert mismatches(fault, prompts, scorer) > 0


@pytest.mark.parametrize("mechanisms", [Fault("none", "", 0).mechanisms, TREE], ids=["chain", "tree"])
def test_the_same_engine_without_a_fault_changes_none(mechanisms, prompts, scorer):
    """Also the hooks at size nothing: a share of 0, and a period that is never due."""
    assert mismatches(Fault("none", "", 0, mechanisms), prompts, scorer) == 0
    assert mismatches(Fault("never", "", 0.0, mechanisms, hook="one_too_many"), prompts, scorer) == 0
    assert mismatches(Fault("never", "", 10**6, mechanisms, hook="window"), prompts, scorer) == 0


def test_a_bias_begins_where_it_says(prompts, scorer):
    late = Fault("late", "", 8, bias=dict.fromkeys(range(0, 4096, 7), 8.0), bias_after=20)
    answers = run_fault(late, prompts, MAX_TOKENS, concurrency=4)
    scores = scorer.score(answers)
    places = [
        index
        for answer, score in zip(answers, scores, strict=True)
        for index in score.mismatches(answer.output_ids).nonzero()[0]
    ]
    assert places and min(places) >= 20


def test_one_bit_of_one_record_is_one_weight():
    tensors = {MATRIX: torch.randn(128, 64, generator=torch.Generator().manual_seed(1)).bfloat16().float()}
    for kind, ratios in (("exponent", (256, 256)), ("mantissa", (0.5, 1.5))):
        wrong = flip_bit(tensors, kind)[MATRIX]
        places = (wrong != tensors[MATRIX]).nonzero()
        assert len(places) == 1
        ratio = float(wrong[tuple(places[0])] / tensors[MATRIX][tuple(places[0])])
        assert ratios[0] <= ratio <= ratios[1] and ratio != 1


def test_rounding_of_the_head_is_no_fault_by_the_rules(prompts, scorer):
    arm = score_arm(run_fault(ROUNDED, prompts, MAX_TOKENS, concurrency=4), scorer, RULES)
    assert arm.num_events == 0


def test_faults_have_names_of_their_own():
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) and fault_named(names[0]) is FAULTS[0]
    with pytest.raises(ConfigError, match="expected one of"):
        fault_named("none")


def test_no_server_reaches_a_fault():
    """Only the power measurements import them."""
    allowed = ("specpilot.forcing.faults", "specpilot.forcing.power")
    for module in find_modules():
        if module.name.startswith(allowed):
            continue
        for node in ast.walk(ast.parse(module.path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(allowed[0]), module.name
