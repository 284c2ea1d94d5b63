"""Command line of ``specpilot console``; no setting comes from anywhere else."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ConsoleSettings", "read_arguments"]


@dataclass(frozen=True)
class ConsoleSettings:
    admin_url: str
    gateway_url: str
    host: str
    port: int
    root_path: str
    log_level: str


def _url(text: str) -> str:
    if re.fullmatch(r"https?://[^/\s]+/?", text) is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected scheme, host and port without a path")
    return text.rstrip("/")


def _prefix(text: str) -> str:
    if text in ("", "/"):
        return ""
    if re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", text) is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a path such as /console")
    return text.rstrip("/")


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected 1 to 65535")
    return int(text)


def read_arguments(arguments: Sequence[str]) -> ConsoleSettings:
    """Ends the process with exit code 2 and the reason for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="specpilot console", description="The web console of one sidecar.", allow_abbrev=False
    )
    parser.add_argument(
        *("--admin-url", "--sidecar"),
        type=_url,
        default="http://127.0.0.1:8001",
        help="the sidecar's admin API (default: %(default)s)",
    )
    parser.add_argument(
        "--gateway-url",
        type=_url,
        default="http://127.0.0.1:8000",
        help="the sidecar's gateway, for the playground (default: %(default)s)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=7860, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--root-path",
        type=_prefix,
        default="",
        help="path under which it is published, such as /console; a proxy may strip it or leave it",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return ConsoleSettings(**vars(parser.parse_args(arguments)))
