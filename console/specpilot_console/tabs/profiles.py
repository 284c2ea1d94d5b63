"""Profiles: what could run here, with which command, and the switch to it."""

from __future__ import annotations

import json
import shlex
from typing import Any

import gradio as gr

from specpilot_console.client import ApiError, Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, badges, heading, note, problem, table
from specpilot_console.switch_view import ENDED, switch_html
from specpilot_service.schemas.admin import (
    CanaryRequest,
    ProfileDetail,
    ProfileList,
    PromoteRequest,
    ReasonRequest,
    ResolvedView,
    SwitchList,
    SwitchRequest,
    SwitchView,
)

__all__ = ["build", "profiles_html"]

_EVERY_S = 1.0


def build(frame: Frame) -> None:
    listing = gr.HTML(padding=False)
    with gr.Row():
        with gr.Column(scale=3):
            profile = gr.Dropdown(label="Profile", choices=[], allow_custom_value=True, interactive=True)
            said = gr.HTML(padding=False)
            command = gr.Code(
                label="Resolved command",
                language="shell",
                interactive=False,
                wrap_lines=True,
                show_line_numbers=False,
            )
            with gr.Accordion("Profile document", open=False):
                document = gr.Code(
                    label="Document", language="json", interactive=False, show_line_numbers=False
                )
        with gr.Column(scale=2):
            reason = gr.Textbox(label="Reason", placeholder="kept in the audit log", max_length=500)
            with gr.Row():
                mode = gr.Dropdown(["auto", "surge", "recreate", "in-engine"], value="auto", label="Mode")
                share = gr.Slider(0, 90, value=0, step=5, label="Canary, %")
            by_hand = gr.Checkbox(False, label="Stay at the canary share until promoted")
            start = frame.button("Switch to this profile", "operator", variant="primary")
            with gr.Row():
                set_share = frame.button("Set canary share", "operator")
                promote = frame.button("Promote", "operator")
                force = frame.button("Promote though a check failed", "admin")
                cancel = frame.button("Cancel switch", "operator", variant="stop")
            answer = gr.HTML(padding=False)
            progress = gr.HTML(padding=False)
    # The switch that this page shows: its buttons mean that one, whatever others have begun meanwhile.
    shown = gr.JSON(visible="hidden")

    frame.when_shown(_list_profiles, [profile], [listing, profile])
    frame.on(profile.change, _show_profile, [profile], [said, command, document])
    frame.every(_EVERY_S, _show_progress, [shown], [progress, shown, listing])
    outputs = [answer, progress, shown]
    frame.on(start.click, _start_switch, [profile, mode, share, by_hand, reason], outputs)
    frame.on(set_share.click, _change_share, [shown, share, reason], outputs)
    frame.on(promote.click, _promote_switch, [shown, reason], outputs)
    frame.on(force.click, _force_switch, [shown, reason], outputs)
    frame.on(cancel.click, _cancel_switch, [shown, reason], outputs)


def _list_profiles(session: Session, chosen: str | None) -> Any:
    found = session.fetch(ProfileList, "profiles.list")
    choices = [(profile.name, profile.profile_id) for profile in found.profiles]
    current = next((profile.profile_id for profile in found.profiles if profile.is_current), None)
    value = chosen or current or (choices[0][1] if choices else None)
    return profiles_html(found), gr.Dropdown(choices=choices, value=value)


def profiles_html(found: ProfileList) -> Markup:
    order = {"runnable": 0}
    rows = [
        (
            badges(badge(profile.status), *([badge("current", "good")] if profile.is_current else [])),
            profile.name,
            profile.drafter,
            profile.regime,
            profile.engine,
            profile.switch,
            "; ".join(profile.reasons),
        )
        for profile in sorted(found.profiles, key=lambda profile: order.get(profile.status, 1))
    ]
    columns = ["Status", "Profile", "Drafter", "Regime", "Engine", "Switch", "Why not"]
    return Markup(heading(f"Profiles on this machine: {found.gpu}") + table(columns, rows, "No profiles."))


def _show_profile(session: Session, profile: str | None) -> Any:
    if not profile:
        return "", "", ""
    try:
        detail = session.fetch(ProfileDetail, "profiles.show", profile=profile)
    except ApiError as error:
        return problem(error), "", ""
    document = json.dumps(detail.document, indent=2, ensure_ascii=False)
    try:
        resolved = session.fetch(ResolvedView, "profiles.resolved", profile=profile)
    except ApiError as error:
        return problem(error), "", document
    where = [(name, value) for name, value in resolved.origins.items()]
    title = f"{detail.title} ({detail.profile_id})"
    said = Markup(
        note(title)
        + heading("Where each value comes from")
        + table(["Value", "From"], where, "All by default.")
    )
    return said, _command_text(resolved), document


def _command_text(resolved: ResolvedView) -> str:
    variables = [f"{name}={shlex.quote(value)}" for name, value in resolved.environment.items()]
    return " \\\n  ".join([*variables, *_lines(resolved.command)])


def _lines(command: list[str]) -> list[str]:
    """An option and its value on one line."""
    lines: list[str] = []
    for word in command:
        if lines and not word.startswith("--") and (len(lines) == 1 or lines[-1].startswith("--")):
            lines[-1] += " " + shlex.quote(word)
        else:
            lines.append(shlex.quote(word))
    return lines


def _show_progress(session: Session, before: dict[str, str] | None) -> Any:
    """Progress, what the page remembers of it, and the profiles anew when a switch has ended."""
    progress, shown = _progress(session)
    has_ended = before is not None and shown != before and shown is not None and shown["state"] in ENDED
    listing = profiles_html(session.fetch(ProfileList, "profiles.list")) if has_ended else gr.skip()
    return progress, shown, listing


def _progress(session: Session) -> tuple[Markup, dict[str, str] | None]:
    found = session.fetch(SwitchList, "switches.list").switches
    if not found:
        return note("No switch yet."), None
    first = found[0]
    title = "Switch" if first.state in ENDED else "Switch in progress"
    return Markup(heading(title) + switch_html(first)), {"id": first.id, "state": first.state}


def _open(shown: dict[str, str] | None) -> str:
    if shown is None or shown["state"] in ENDED:
        raise ApiError(409, "conflict", "no switch is open")
    return shown["id"]


def _done(session: Session, text: str) -> Any:
    return note(text, "good"), *_progress(session)


def _start_switch(
    session: Session, profile: str | None, mode: Any, percent: float, by_hand: bool, reason: str
) -> Any:
    if not profile or not reason.strip():
        return note("Choose a profile and give a reason.", "bad"), gr.skip(), gr.skip()
    share = percent / 100 if percent else None
    if by_hand and share is None:
        return note("To stay at the canary, give a canary share.", "bad"), gr.skip(), gr.skip()
    body = SwitchRequest(
        profile=profile, mode=mode, canary_share=share, is_promoted_at_once=not by_hand, reason=reason
    )
    view = session.fetch(SwitchView, "switches.start", body=body)
    return _done(session, f"Switch {view.id} to {view.profile_name} has begun.")


def _change_share(session: Session, shown: dict[str, str] | None, percent: float, reason: str) -> Any:
    if not percent or not reason.strip():
        return note("Give a canary share and a reason.", "bad"), gr.skip(), gr.skip()
    body = CanaryRequest(share=percent / 100, reason=reason)
    view = session.fetch(SwitchView, "switches.canary", body=body, switch_id=_open(shown))
    return _done(session, f"The canary of {view.id} gets {percent:.0f}%.")


def _promote_switch(
    session: Session, shown: dict[str, str] | None, reason: str, is_forced: bool = False
) -> Any:
    if not reason.strip():
        return note("Give a reason.", "bad"), gr.skip(), gr.skip()
    body = PromoteRequest(is_forced=is_forced, reason=reason)
    view = session.fetch(SwitchView, "switches.promote", body=body, switch_id=_open(shown))
    return _done(session, f"{view.id} goes on to promotion.")


def _force_switch(session: Session, shown: dict[str, str] | None, reason: str) -> Any:
    return _promote_switch(session, shown, reason, is_forced=True)


def _cancel_switch(session: Session, shown: dict[str, str] | None, reason: str) -> Any:
    if not reason.strip():
        return note("Give a reason.", "bad"), gr.skip(), gr.skip()
    body = ReasonRequest(reason=reason)
    view = session.fetch(SwitchView, "switches.cancel", body=body, switch_id=_open(shown))
    return _done(session, f"{view.id} is being cancelled; the old revision stays.")
