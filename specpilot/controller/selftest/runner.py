"""``specpilot controller selftest``: everything at once, as one report."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from specpilot.controller.isolation import make_private
from specpilot.controller.ledger import Ledger, LedgerError, read_export
from specpilot.controller.selftest.cheats import (
    CHEATS,
    Cheat,
    DevelopmentOnly,
    FewerThinkingTokens,
    LateFault,
)
from specpilot.controller.selftest.trials import Sets, make_sets, mine_noise, run_candidate
from specpilot.controller.selftest.truth import Truth
from specpilot.controller.selftest.world import Stock
from specpilot.controller.simulation import Box, round_error_rate
from specpilot.engines.base import Engine

__all__ = ["HONEST_SPEED", "build_cheat", "detects_tampering", "run_selftest", "try_sealed_file"]

HONEST_SPEED = 1.1
_AA_ROUNDS = 100
_AA_LIMIT = 0.025
_AGENT, _OWNER = 61_907, 61_908


def run_selftest(engine: Engine, on_stage: Callable[[str], None] = lambda stage: None) -> dict[str, Any]:
    """Simulated null rounds, an honest candidate, every cheat, and a ledger that is tampered with.

    ``ok``: the honest candidate is promoted and passes the sealed final, every cheat is refused for its own reason,
    null changes are promoted in at most 2.5% of rounds, and tampering is seen.
    """
    on_stage("null rounds")
    rate = round_error_rate(Box(run_sd=0.003), np.random.default_rng(31), num_rounds=_AA_ROUNDS)
    on_stage("decoding the answers")
    truth = Truth(engine)
    sets = make_sets(truth)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        on_stage("an honest candidate")
        honest = run_candidate(truth, sets, Stock(HONEST_SPEED), _new(folder, "honest"), is_sealed=True)
        cheats = []
        for kind in CHEATS:
            on_stage(kind.name)
            cheat = build_cheat(kind, sets)
            outcome = run_candidate(truth, sets, cheat, _new(folder, kind.name), is_sealed=kind.is_late)
            is_refused = (outcome.is_final_accepted is False) if kind.is_late else not outcome.is_promoted
            reason = next((one for one in outcome.reasons if one.startswith(kind.reasons)), None)
            cheats.append(
                {
                    "cheat": kind.name,
                    "refused": is_refused and reason is not None,
                    "stage": outcome.stage,
                    "reason": reason or "; ".join(outcome.reasons),
                }
            )
        on_stage("noise mining")
        num_promoted, refusals = mine_noise(truth, sets, _new(folder, "mining"))
        cheats.append(
            {
                "cheat": "noise mining by retries",
                "refused": num_promoted == 0 and len(refusals) == 25,
                "stage": "pair",
                "reason": refusals[0] if refusals else "",
            }
        )
        on_stage("sealed file")
        cheats.append({"cheat": "reading sealed files", "stage": "file system"} | try_sealed_file(folder))
        is_seen = detects_tampering(_new(folder, "tamper"))
    is_honest_promoted = honest.is_promoted and honest.is_final_accepted is True
    return {
        "ok": is_honest_promoted and rate <= _AA_LIMIT and is_seen and all(one["refused"] for one in cheats),
        "aa_promotion_rate": rate,
        "aa_rounds": _AA_ROUNDS,
        "honest_promoted": is_honest_promoted,
        "honest_reasons": list(honest.reasons),
        "cheats": cheats,
        "tamper_detected": is_seen,
    }


def build_cheat(kind: type[Cheat], sets: Sets) -> Cheat:
    if issubclass(kind, FewerThinkingTokens):
        return kind(sets.end_of_thinking_id)
    if issubclass(kind, DevelopmentOnly):
        return kind({one.prompt_ids for one in sets.development.prompts})
    return kind(sets.development.max_new_tokens) if issubclass(kind, LateFault) else kind()


def try_sealed_file(folder: Path) -> dict[str, Any]:
    """Read and write a file in a controller's private folder as another user.

    Without root there is no other user to be: what is refused then is the start of a controller that protects nothing.
    """
    if os.geteuid() != 0:
        from specpilot.controller.isolation import find_faults

        faults = find_faults(None)
        return {"refused": bool(faults), "reason": f"not isolated, refused to start: {'; '.join(faults)}"}
    os.chmod(folder, 0o755)
    private = folder / "private"
    make_private(private, _OWNER)
    sealed = private / "sealed.jsonl"
    sealed.write_text("secret\n", encoding="utf-8")
    os.chown(sealed, _OWNER, _OWNER)
    errors = []
    for command in (
        ["/bin/cat", str(sealed)],
        ["/bin/cp", "/dev/null", str(sealed)],
        ["/bin/ls", str(private)],
    ):
        done = subprocess.run(
            command, user=_AGENT, group=_AGENT, extra_groups=[], capture_output=True, text=True, env={}
        )
        errors.append(done.stderr.strip() if done.returncode else "")
    is_whole = sealed.read_text(encoding="utf-8") == "secret\n"
    return {"refused": is_whole and all("Permission denied" in one for one in errors), "reason": errors[0]}


def detects_tampering(folder: Path) -> bool:
    """An entry changed, one removed, the end cut off, and an export edited: each must be seen."""
    path = folder / "ledger"

    def fresh() -> tuple[int, str]:
        for file in folder.iterdir():
            file.unlink()
        ledger = Ledger(path)
        entries = [ledger.append("selftest", "entry", number=number) for number in range(5)]
        ledger.close()
        return entries[-1].seq, entries[-1].hash

    def change(statement: str) -> None:
        with sqlite3.connect(path) as connection:
            connection.executescript(f"DROP TRIGGER no_update; DROP TRIGGER no_delete; {statement};")
        connection.close()

    seen = []
    for statement in (
        "UPDATE entries SET detail = '{\"number\": 9}' WHERE seq = 3",
        "DELETE FROM entries WHERE seq = 2",
    ):
        fresh()
        change(statement)
        seen.append(_is_refused(lambda: Ledger(path)))
    receipt = fresh()
    change("DELETE FROM entries WHERE seq = 5")
    ledger = Ledger(path)
    seen.append(ledger.verify().is_intact and not ledger.verify(receipt).is_intact)
    ledger.export(folder / "export")
    ledger.close()
    text = (folder / "export").read_text(encoding="utf-8").replace('"number": 1', '"number": 8')
    (folder / "export").write_text(text, encoding="utf-8")
    seen.append(_is_refused(lambda: read_export(folder / "export")))
    return all(seen)


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except LedgerError:
        return True
    return False


def _new(folder: Path, name: str) -> Path:
    made = folder / name.replace(" ", "-")
    made.mkdir()
    return made
