"""Keys: who may do what, and what they used."""

from __future__ import annotations

from typing import Any, get_args

import gradio as gr
from pydantic import ValidationError

from specpilot_console.client import Session
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, badges, heading, note, table
from specpilot_service.schemas.admin_access import KeyCreate, KeyCreated, KeyList, KeyUsage, KeyView, Scope

__all__ = ["build", "keys_html"]


def build(frame: Frame) -> None:
    listing = gr.HTML(padding=False)
    with gr.Row():
        with gr.Column():
            name = gr.Textbox(label="Name of a new key")
            scopes = gr.CheckboxGroup(list(get_args(Scope)), label="Scopes")
            models = gr.Textbox(label="Models, separated by commas", placeholder="empty: all")
            with gr.Row():
                requests = gr.Number(value=0, precision=0, minimum=0, label="Requests a minute; 0: no limit")
                tokens = gr.Number(value=0, precision=0, minimum=0, label="Tokens a minute; 0: no limit")
            make = frame.button("Make the key", "admin", variant="primary")
        with gr.Column():
            key = gr.Dropdown(label="Key", choices=[], allow_custom_value=True)
            with gr.Row():
                usage = frame.button("Show its usage", "admin")
                revoke = frame.button("Revoke it", "admin", variant="stop")
            used = gr.HTML(padding=False)
    said = gr.HTML(padding=False)
    secret = gr.Textbox(label="Secret, shown here once", visible=False, interactive=False, buttons=["copy"])

    frame.when_shown(_list_keys, (), [listing, key])
    fields = [name, scopes, models, requests, tokens]
    frame.on(make.click, _make_key, fields, [said, secret, listing, key])
    frame.on(revoke.click, _revoke_key, [key], [said, secret, listing, key])
    frame.on(usage.click, _show_usage, [key], [used])


def _list_keys(session: Session) -> Any:
    found = session.fetch(KeyList, "keys.list")
    choices = [(f"{view.name} ({view.id})", view.id) for view in found.keys if view.revoked_at is None]
    return keys_html(found), gr.Dropdown(choices=choices, value=None)


def keys_html(found: KeyList) -> Markup:
    rows = [
        (
            view.id,
            view.name,
            badge("revoked") if view.revoked_at else badge("in force", "good"),
            badges(*(badge(scope, "plain") for scope in view.scopes)),
            "all" if view.models is None else view.models,
            view.requests_per_minute,
            view.tokens_per_minute,
            view.created_by,
            view.created_at,
            view.last_used_at,
        )
        for view in found.keys
    ]
    # The state is seen first: a narrow window cuts what is on the right.
    columns = ["Id", "Name", "State", "Scopes", "Models", "Requests/min", "Tokens/min"]
    return Markup(heading("Keys") + table([*columns, "Made by", "Made", "Last used"], rows))


def _make_key(
    session: Session, name: str, scopes: list[Any], models: str, requests: float | None, tokens: float | None
) -> Any:
    named = [word.strip() for word in models.split(",") if word.strip()]
    try:
        body = KeyCreate(
            name=name.strip(),
            scopes=scopes,
            models=named or None,
            requests_per_minute=int(requests or 0) or None,
            tokens_per_minute=int(tokens or 0) or None,
        )
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        return note(wrong, "bad"), gr.skip(), gr.skip(), gr.skip()
    made = session.fetch(KeyCreated, "keys.create", body=body)
    said = note(f"Key {made.id} ({made.name}) is made. Copy its secret now.", "good")
    return said, gr.Textbox(made.secret, visible=True), *_list_keys(session)


def _revoke_key(session: Session, key: str | None) -> Any:
    if not key:
        return note("Choose a key.", "bad"), gr.skip(), gr.skip(), gr.skip()
    gone = session.fetch(KeyView, "keys.revoke", key_id=key)
    said = note(f"Key {gone.id} ({gone.name}) is revoked; its open requests are cut.", "good")
    return said, gr.Textbox("", visible=False), *_list_keys(session)


def _show_usage(session: Session, key: str | None) -> Markup:
    if not key:
        return note("Choose a key.", "bad")
    found = session.fetch(KeyUsage, "keys.usage", key_id=key)
    rows = [
        (
            row.hour,
            row.model,
            row.num_requests,
            row.num_refused,
            row.prompt_tokens,
            row.completion_tokens,
            row.estimated_tokens,
        )
        for row in found.rows
    ]
    columns = ["Hour", "Model", "Requests", "Refused", "Prompt tokens", "Answer tokens", "Of cut answers"]
    return table(columns, rows, f"{found.name} has asked for nothing yet.")
