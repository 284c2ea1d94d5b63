"""Audits: whether served tokens are the target's own, by token forcing."""

from __future__ import annotations

from specpilot_console.audit_view import audit_result_html
from specpilot_console.frame import Frame
from specpilot_console.tabs.checks import CheckPart, build_checks

__all__ = ["build"]


def build(frame: Frame) -> None:
    part = CheckPart("audit", "Token-forcing audits", "audits.start", "Start an audit", audit_result_html)
    build_checks(frame, part)
