"""A switch on the page: its tries and the error that counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from specpilot_console.switch_view import switch_html
from specpilot_service.schemas.admin import SwitchStep, SwitchView


def switch_of(state: Any, **changes: Any) -> SwitchView:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    values: dict[str, Any] = dict(
        id="sw-1", state=state, mode="recreate", profile_id="p", profile_name="p", from_revision=None, to_revision=1,
        canary_share=None, is_promoted_at_once=True, gates=[], actor="sidecar", reason="first start", error=None,
        created_at=now, ended_at=now, steps=[SwitchStep(state=state, at=now)],
    )  # fmt: skip
    return SwitchView(**(values | changes))


@pytest.mark.parametrize(
    ("state", "is_bad"), [("applied", False), ("starting", False), ("rolled_back", True)]
)
def test_the_error_of_an_earlier_try_is_no_fault_of_this_one(state: str, is_bad: bool) -> None:
    shown = switch_html(switch_of(state, num_tries=3, error="no token"))
    assert "<dt>Tries</dt><dd>3</dd>" in shown
    assert ('sp-note sp-bad" role="status">no token' in shown) is is_bad
    assert ("The try before: no token" in shown) is not is_bad


def test_one_try_is_not_worth_a_line() -> None:
    assert "Tries" not in switch_html(switch_of("applied"))
