"""The buttons of the profiles tab, with two operators at once."""

from __future__ import annotations

import pytest

from specpilot_console.client import ApiError, Session
from specpilot_console.tabs.profiles import _cancel_switch, _promote_switch, _show_progress, _start_switch
from specpilot_service.schemas.admin import ReasonRequest
from tests.service.sidecar.harness import LiveSidecar


def test_a_button_means_the_switch_that_the_page_shows(admin: Session, sidecar: LiveSidecar) -> None:
    _, _, mine = _start_switch(admin, "sha256-slow-start", "auto", 0, False, "mine")
    # Another operator cancels it and begins one of his own, which this page does not show yet.
    admin.call("switches.cancel", body=reason("not now"), switch_id=mine["id"])
    sidecar.wait_for_switch(mine["id"])
    other = sidecar.switch("slow-start", canary_share=0.5, is_promoted_at_once=False)
    for press in (_cancel_switch, _promote_switch):
        with pytest.raises(ApiError, match=f"{mine['id']}: it has ended"):
            press(admin, mine, "mine")
    assert sidecar.wait_for_switch(other, "canary", "applied")["state"] == "canary"
    _, shown, _ = _show_progress(admin, mine)
    assert shown["id"] == other
    said, _, _ = _cancel_switch(admin, shown, "now that I see it")
    assert f"{other} is being cancelled" in said
    assert sidecar.wait_for_switch(other)["state"] == "cancelled"


def test_the_list_follows_the_end_of_a_switch(admin: Session, sidecar: LiveSidecar) -> None:
    _, _, shown = _start_switch(admin, "sha256-slow-start", "auto", 0, False, "x")
    _, shown, listing = _show_progress(admin, shown)
    assert not isinstance(listing, str)  # nothing new
    sidecar.wait_for_switch(shown["id"])
    _, shown, listing = _show_progress(admin, shown)
    assert shown["state"] == "applied" and "slow-start" in listing
    _, _, listing = _show_progress(admin, shown)
    assert not isinstance(listing, str)


def reason(text: str) -> ReasonRequest:
    return ReasonRequest(reason=text)


def test_without_a_switch_there_is_nothing_to_cancel(admin: Session) -> None:
    for shown in (None, {"id": "sw-1", "state": "applied"}):
        with pytest.raises(ApiError, match="no switch is open"):
            _cancel_switch(admin, shown, "x")
