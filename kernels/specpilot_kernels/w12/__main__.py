"""``python -m specpilot_kernels.w12``: the verbs of ``specpilot w12`` with torch, numpy and numba alone.

python -m specpilot_kernels.w12 encode|decode|verify|stat PATH [--out PATH] [--mlp-only]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from specpilot_kernels.w12.safetensors_file import WeightFileError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 when a file is refused or has faults, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m specpilot_kernels.w12", description="BF16 weights in 12 bits, no bit lost."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, says in (
        ("encode", "write .w12 files from safetensors files; run again after it was stopped, it goes on"),
        ("decode", "write the original safetensors files again, byte for byte"),
        ("verify", "decode every tensor in memory and compare it with the SHA-256 of the original's bytes"),
        ("stat", "bits a weight, escapes and windows, layer by layer"),
    ):
        options = verbs.add_parser(verb, help=says, description=says)
        options.add_argument("path", type=Path, help="a weight file, or a checkpoint's folder")
        if verb in ("encode", "decode"):
            options.add_argument("--out", type=Path, help="where to write; default: beside the path")
        if verb == "encode":
            options.add_argument("--mlp-only", action="store_true", help="feed-forward blocks alone")
    chosen = parser.parse_args(arguments)
    try:
        return _run(chosen)
    except WeightFileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; whole files stay, run it again to go on", file=sys.stderr)
        return 130


def _run(chosen: argparse.Namespace) -> int:
    # Here, for torch and the compiler take seconds: help should not, and an interrupt meanwhile is one, too.
    from specpilot_kernels.w12.checkpoint import decode_checkpoint, encode_checkpoint, verify_checkpoint
    from specpilot_kernels.w12.folders import PLAIN_SUFFIX, left_behind
    from specpilot_kernels.w12.format import W12_SUFFIX
    from specpilot_kernels.w12.report import (
        beside,
        folder_statistics,
        statistics_lines,
        statistics_row,
        verdict_line,
        verdict_row,
    )

    path: Path = chosen.path
    if chosen.verb in ("encode", "decode"):
        is_encode = chosen.verb == "encode"
        suffix, new_suffix = (PLAIN_SUFFIX, W12_SUFFIX) if is_encode else (W12_SUFFIX, PLAIN_SUFFIX)
        out = chosen.out or beside(path, new_suffix)
        made = (
            encode_checkpoint(path, out, is_mlp_only=chosen.mlp_only)
            if is_encode
            else decode_checkpoint(path, out)
        )
        for file in made:
            print(f"{file}: {file.stat().st_size:,} bytes")
        for other in left_behind(path, suffix):
            print(f"left behind: {other}")
        return 0
    if chosen.verb == "stat":
        for folder, files, tensors in folder_statistics(path):
            print(*statistics_lines(statistics_row(folder, files, tensors)), sep="\n")
        return 0
    has_fault = False
    for verdict in verify_checkpoint(path):
        print(verdict_line(verdict_row(verdict)), flush=True)
        has_fault |= bool(verdict.faults)
    return int(has_fault)


if __name__ == "__main__":
    sys.exit(main())
