"""The page, and the ASGI application around it."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr
from fastapi import FastAPI
from starlette.types import ASGIApp

from specpilot_console.client import ApiError, ConsoleClient, Session
from specpilot_console.frame import Frame, roles_of
from specpilot_console.login import Gate
from specpilot_console.markup import problem
from specpilot_console.style import CSS
from specpilot_console.tabs import TABS

__all__ = ["build_ui", "create_app"]


def build_ui(client: ConsoleClient, root_path: str = "") -> gr.Blocks:
    """The whole page. Who looks at it is known from each request alone, so one page serves everybody."""
    frame = Frame(client)
    page: gr.Blocks = gr.Blocks(title="SpecPilot", analytics_enabled=False, fill_width=True)
    with page:
        head = gr.HTML(_head("", root_path), padding=False)
        tabs: dict[str, gr.Tab] = {}
        with gr.Tabs():
            for name, build in TABS:
                frame.begin_tab(name)
                with gr.Tab(name, render_children=True) as tab:
                    build(frame)
                tabs[name] = tab
        buttons = [button for button, _ in frame.buttons]

        def open_page(session: Session) -> Any:
            try:
                me = session.whoami()
            except ApiError as error:
                return (_head("", root_path) + problem(error), *(gr.skip() for _ in buttons))
            roles = roles_of(me.scopes)
            who = f"{me.name} ({', '.join(me.scopes)})"
            allowed = (gr.Button(interactive=role in roles) for _, role in frame.buttons)
            return (_head(who, root_path), *allowed)

        frame.on(page.load, open_page, (), [head, *buttons])
        frame.finish(page, tabs, TABS[0][0])
    return page


def _head(who: str, root_path: str) -> str:
    return (
        '<div class="sp-head"><span class="sp-name">SpecPilot</span>'
        f'<span class="sp-who">{escape(who)}</span>'
        f'<form method="post" action="{escape(root_path)}/session/logout">'
        '<button type="submit">Log out</button></form></div>'
    )


def _theme() -> gr.themes.Base:
    """Fonts of the machine that looks, so that nothing is fetched; colours for light and dark come from the theme."""
    sans = ("ui-sans-serif", "system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")
    return gr.themes.Default(
        primary_hue="blue", secondary_hue="blue", neutral_hue="zinc", font=sans, font_mono=mono
    )


def create_app(client: ConsoleClient, root_path: str = "") -> ASGIApp:
    """The console behind its login.

    Parameters
    ----------
    root_path
        "" or a path that begins with a slash and ends without one.
    """
    inner = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app = gr.mount_gradio_app(
        inner,
        build_ui(client, root_path),
        path="/",
        root_path=root_path or None,
        css=CSS,
        theme=_theme(),
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        show_error=True,
    )
    return Gate(app, client, root_path)
