"""Overview: what runs, how fast, and whether it is checked."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.history import append_point
from specpilot_console.markup import Markup, badge, cards, heading, note, show, table
from specpilot_console.plots import speed_plot
from specpilot_console.switch_view import switch_html
from specpilot_service.schemas.admin import Overview

__all__ = ["build", "overview_html"]

_EVERY_S = 2.0


def build(frame: Frame) -> None:
    with gr.Row():
        status = gr.HTML(padding=False)
    plot = gr.Plot(label="Last minutes, seen from this page", show_label=True)
    details = gr.HTML(padding=False)
    # The page remembers its points itself: another replica may answer the next time.
    points = gr.JSON([], visible="hidden")

    def refresh(session: Session, before: list[dict[str, Any]] | None) -> Any:
        view = session.fetch(Overview, "overview")
        after = append_point(before or [], view.traffic)
        return overview_html(view), speed_plot(after), _details_html(view), after

    frame.every(_EVERY_S, refresh, [points], [status, plot, details, points])


def overview_html(view: Overview) -> Markup:
    traffic, revision = view.traffic, view.revision
    ready = badge("ready", "good") if view.is_ready else badge("not ready", "bad")
    switch = badge(view.switch.state) if view.switch else "none yet"
    running = "" if revision is None else f"revision {revision.number}, {revision.profile_id}"
    tau = "tokens per verify step, bonus included"
    return Markup(
        cards(
            [
                ("State", ready, view.not_ready_because),
                ("Profile", "none" if revision is None else revision.profile_name, running),
                ("Tokens/s", traffic.tokens_per_s, "over the last minute, all requests"),
                ("Accept length tau", traffic.tau, tau),
                ("Ceiling gap", badge(view.ceiling.verdict), view.ceiling.message),
                ("Audit verdict", badge(view.audit.verdict), view.audit.message),
                ("Last switch", switch, view.switch.profile_name if view.switch else ""),
                ("First event", _ms(traffic.first_event_ms_p50), f"p99 {_ms(traffic.first_event_ms_p99)}"),
            ],
            is_wide=True,
        )
        + "".join(note(f"Degraded: {line}", "bad") for line in view.degraded)
    )


def _details_html(view: Overview) -> Markup:
    engines = [
        (
            engine.id,
            badge(engine.role, "plain"),
            badge(engine.state),
            engine.revision,
            f"{engine.share:.0%}",
            engine.num_in_flight,
            badge(engine.breaker),
            engine.num_restarts,
            engine.models,
            engine.detail,
        )
        for engine in view.engine.instances
    ]
    columns = ["Engine", "Role", "State", "Revision", "Share", "In flight", "Breaker", "Restarts"]
    columns += ["Models", "Detail"]
    traffic = view.traffic
    load = [
        (
            traffic.num_in_flight,
            traffic.num_queued,
            traffic.num_held,
            traffic.requests_per_s,
            traffic.refused_per_s,
            _ms(traffic.step_ms),
        )
    ]
    columns_of_load = ["In flight", "Queued", "Held", "Requests/s", "Refused/s", "Step"]
    parts = [heading("Engines"), table(columns, engines, "No engine runs.")]
    parts += [heading("Load"), table(columns_of_load, load)]
    if view.switch is not None:
        parts += [heading("Last switch"), switch_html(view.switch)]
    return Markup("".join(parts) + f'<p class="sp-small">Version {show(view.version)}</p>')


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} ms"
