"""``python -m specpilot.forcing.job --url URL --out FILE``: an audit as a program that reports its progress.

One JSON object a line on stdout: ``done``, ``total``, ``message``. The result has ``passed``, ``message``, the verdict
(its first events) and what lies beside it: ``report.html``, ``verdict.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specpilot.forcing.live import LiveAudit, run_live_audit
from specpilot.forcing.report.verdict_page import write_report
from specpilot.forcing.report.verdict_picture import verdict_picture
from specpilot.forcing.verdict import Verdict
from specpilot.models.folders import model_folders
from specpilot.refengine.tokenizer import ChatTokenizer

__all__ = ["RESULT_EVENTS", "main", "result_of"]

RESULT_EVENTS = 50
"""Events of a result; all of them are in ``verdict.json``."""

_EVERY_S = 0.2


def result_of(verdict: Verdict, written: Sequence[Path]) -> dict[str, Any]:
    """What a job says: ``passed`` and one line for people, then the verdict."""
    shown = replace(verdict, events=verdict.events[:RESULT_EVENTS])
    return {
        "passed": verdict.passed,
        "message": _message(verdict),
        "verdict": shown.to_json(),
        "num_events": len(verdict.events),
        "files": [path.name for path in written],
        "picture": verdict_picture({"served": verdict}).svg(),
    }


def _message(verdict: Verdict) -> str:
    if verdict.passed is None:
        return verdict.reasons[0]
    counts, rate = verdict.counts["system"], verdict.intervals["system"]["rate"]
    text = (
        f"{verdict.word}: {counts['mismatches']} of {counts['tokens']:,} tokens mismatch ({rate:.2%}, stock "
        f"{verdict.intervals['stock']['rate']:.2%}), {counts['unexplained_events']} of {counts['audited_events']} "
        "large-margin events unexplained"
    )
    return "; ".join([text, *verdict.reasons])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--model")
    parser.add_argument("--scored-by", choices=("second", "live"), default="second")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--probe", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="Result; the report goes beside it.")
    options = parser.parse_args(arguments)
    last_s = 0.0

    def show(stage: str, done: int, total: int) -> None:
        nonlocal last_s
        if done < total and time.monotonic() - last_s < _EVERY_S:
            return
        last_s = time.monotonic()
        print(json.dumps({"done": done, "total": total, "message": stage}), flush=True)

    what = LiveAudit(
        options.url,
        options.model,
        options.scored_by,
        options.prompts,
        options.max_tokens,
        options.seed,
        options.probe,
        options.delta,
    )
    verdict = run_live_audit(what, show)
    _, folder, _ = model_folders(options.model)
    texts = ChatTokenizer.from_folder(folder).decode
    written = write_report(options.out.parent, {"served": verdict}, texts)
    options.out.write_text(json.dumps(result_of(verdict, written)) + "\n", encoding="utf-8")
    print(_message(verdict), file=sys.stderr)


if __name__ == "__main__":
    main()
