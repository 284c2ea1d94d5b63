"""A profiles folder with one small row, to be changed by a test."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from specpilot.profiles import ProfileStore, load_profiles

GPU_ROW: dict[str, Any] = {
    "id": "h100",
    "product": "NVIDIA H100 80GB HBM3",
    "compute_capability": "9.0",
    "memory_mib": [79000, 82000],
    "sm": "sm_90a",
    "label": "NVIDIA-H100-80GB-HBM3",
    "source": "a test",
}

ROW: dict[str, Any] = {
    "schema": 1,
    "version": 1,
    "title": "a row",
    "deployment": {
        "gpu": "h100",
        "target": {"name": "T", "weights": "bf16", "folder": "T"},
        "drafter": {"kind": "dflash2", "folder": "D"},
        "regime": "single-request",
        "num_requests": [1],
    },
    "engine": {
        "kind": "sglang",
        "version": "0.5.20",
        "arguments": {
            "attention-backend": "triton",
            "context-length": 4096,
            "max-running-requests": 1,
            "mem-fraction-static": 0.85,
            "speculative-num-draft-tokens": 8,
            "speculative-draft-attention-backend": "triton",
        },
    },
    "mechanisms": [{"id": "draft-tree", "options": {"builder": "best_first", "nodes": 32}}],
    "memory": {
        "target_gib": 50.0,
        "drafter_gib": 3.0,
        "reserve_gib": 2.0,
        "source": "a test",
        "kv_kib_per_token": 64.0,
        "state_mib_per_request": 1024.0,
        "kv_tokens": 16384,
    },
    "startup_budget_s": 60,
    "switch": "recreate",
    "evidence": {"kind": "untested", "source": "a test"},
}

DELETED = object()


def changed(path: str, value: object) -> dict[str, Any]:
    """``ROW`` with the value at a dotted path replaced, or removed with ``DELETED``."""
    row = copy.deepcopy(ROW)
    *parents, last = path.split("/")
    place = row
    for parent in parents:
        place = place[parent]
    if value is DELETED:
        del place[last]
    else:
        place[last] = value
    return row


def write_store(folder: Path, *rows: dict[str, Any], name: str = "h100/t--dflash2--single") -> ProfileStore:
    """Load a folder that holds ``rows`` under ``name``, ``name2``, ..."""
    (folder / "h100").mkdir(parents=True, exist_ok=True)
    (folder / "gpus.yaml").write_text(yaml.safe_dump([GPU_ROW]), encoding="utf-8")
    for index, row in enumerate(rows):
        suffix = str(index + 1) if index else ""
        (folder / f"{name}{suffix}.yaml").write_text(yaml.safe_dump(row), encoding="utf-8")
    return load_profiles(folder)
