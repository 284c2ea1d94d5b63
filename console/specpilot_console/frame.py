"""What the tabs share while the page is built: the caller's session, the event rules, and who may press what.

Rules that make any replica able to answer any request: events are single requests (``queue=False``), nothing is kept
between them on this side, and what a page must remember it sends along (a hidden component in the browser).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from starlette.datastructures import Headers

from specpilot_console.client import ApiError, ConsoleClient, Session
from specpilot_console.login import key_of
from specpilot_console.markup import problem

__all__ = ["Frame", "roles_of"]

_RANKS = {"viewer": 0, "operator": 1, "admin": 2}


def roles_of(scopes: Sequence[str]) -> set[str]:
    """Roles that scopes include: admin includes operator, operator includes viewer."""
    highest = max((_RANKS[scope] for scope in scopes if scope in _RANKS), default=-1)
    return {role for role, rank in _RANKS.items() if rank <= highest}


@dataclass
class Frame:
    """Lives while one page is built; no user's data is in it."""

    client: ConsoleClient
    buttons: list[tuple[gr.Button, str]] = field(default_factory=list)
    _current: str = ""
    _timers: list[tuple[str, gr.Timer]] = field(default_factory=list)
    _shown: dict[str, list[tuple[Callable[..., Any], list[Any], list[Any]]]] = field(default_factory=dict)

    def button(self, label: str, role: str = "viewer", **options: Any) -> gr.Button:
        """A button that works once the page knows that the key has the role; the admin API judges again."""
        button = gr.Button(label, interactive=False, size="sm", **options)
        self.buttons.append((button, role))
        return button

    def on(
        self,
        trigger: Callable[..., Any],
        work: Callable[..., Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        *,
        is_long: bool = False,
    ) -> Any:
        """Run ``work(session, *inputs)`` when ``trigger`` fires; ``is_long`` shows that it runs.

        An ApiError is shown in the first output, an HTML component; the others stay as they are.
        """

        def handle(request: gr.Request, *values: Any) -> Any:
            session = self.session_of(request)
            try:
                return work(session, *values)
            except ApiError as error:
                shown = problem(error)
            return shown if len(outputs) == 1 else (shown, *(gr.skip() for _ in outputs[1:]))

        return trigger(
            handle,
            list(inputs),
            list(outputs),
            queue=False,
            api_visibility="private",
            show_progress="minimal" if is_long else "hidden",
        )

    def session_of(self, request: gr.Request) -> Session:
        return self.client.session(key_of(Headers(dict(request.headers))) or "")

    # What happens when a tab is shown

    def begin_tab(self, name: str) -> None:
        self._current = name
        self._shown[name] = []

    def when_shown(self, work: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._shown[self._current].append((work, list(inputs), list(outputs)))

    def every(
        self, seconds: float, work: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Again and again while the tab is in front, and at once when it comes there."""
        timer = gr.Timer(seconds, active=False)
        self._timers.append((self._current, timer))
        self.on(timer.tick, work, inputs, outputs)
        self.when_shown(work, inputs, outputs)

    def finish(self, page: gr.Blocks, tabs: dict[str, gr.Tab], first: str) -> None:
        """Bind what happens when tabs come to the front; ``first`` is there when the page opens."""
        timers = [timer for _, timer in self._timers]
        for name, tab in tabs.items():
            triggers = [tab.select, page.load] if name == first else [tab.select]
            for trigger in triggers:
                for work, inputs, outputs in self._shown[name]:
                    self.on(trigger, work, inputs, outputs)

                def activate(session: Session, name: str = name) -> Any:
                    changed = [gr.Timer(active=owner == name) for owner, _ in self._timers]
                    return changed[0] if len(changed) == 1 else changed

                if timers:
                    self.on(trigger, activate, (), timers)
