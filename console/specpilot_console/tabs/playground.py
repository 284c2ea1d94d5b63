"""Playground: the same prompt and seed, stock beside the profile."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import gradio as gr

from specpilot_console.client import NO_KEY, ApiError, Session, is_key
from specpilot_console.frame import Frame
from specpilot_console.markup import Markup, badge, cards, note, problem
from specpilot_console.playground import Answer, Question, ask, curl_code, find_model, python_code
from specpilot_console.plots import answers_plot

__all__ = ["build", "verdict_html"]


def build(frame: Frame) -> None:
    prompt = gr.Textbox(
        label="Prompt", lines=3, value="Tom has 3 boxes with 12 pens each. How many pens are there?"
    )
    with gr.Row():
        max_tokens = gr.Slider(1, 1024, value=128, step=1, label="Most tokens")
        temperature = gr.Slider(0.0, 2.0, value=0.0, step=0.05, label="Temperature")
        seed = gr.Number(value=0, precision=0, label="Seed of both answers")
        key = gr.Textbox(
            label="Key for the gateway", type="password", placeholder="empty: the key of this login"
        )
    with gr.Row():
        both = frame.button("Answer with both", variant="primary")
        show_code = frame.button("View code")
    said = gr.HTML(padding=False)
    with gr.Row():
        with gr.Column():
            stock_facts = gr.HTML(padding=False)
            stock_text = gr.Textbox(label="Stock: plain decoding", lines=9, interactive=False)
        with gr.Column():
            profile_facts = gr.HTML(padding=False)
            profile_text = gr.Textbox(label="Profile: as it is applied", lines=9, interactive=False)
    plot = gr.Plot(show_label=False, visible=False)
    code_said = gr.HTML(padding=False)
    plain: dict[str, Any] = {"wrap_lines": True, "show_line_numbers": False}
    with gr.Row():
        python = gr.Code(label="Python", language="python", interactive=False, visible=False, **plain)
        curl = gr.Code(label="curl", language="shell", interactive=False, visible=False, **plain)
    stock = gr.JSON(visible="hidden")

    inputs = [prompt, max_tokens, temperature, seed, key]
    outputs = [said, stock_facts, stock_text, profile_facts, profile_text, plot]
    # Two events one after the other: the first answer is shown while the second is made.
    first = frame.on(both.click, _answer_stock, inputs, [*outputs, stock], is_long=True)
    frame.on(first.then, _answer_profile, [*inputs, stock], [*outputs, stock], is_long=True)
    frame.on(show_code.click, _view_code, inputs, [code_said, python, curl])


def _question(prompt: str, max_tokens: float, temperature: float, seed: float | None) -> Question:
    return Question(prompt, int(max_tokens), float(temperature), int(seed or 0))


def _ask(session: Session, key: str, question: Question) -> Answer:
    key = _key(session, key)
    return ask(session.client, key, find_model(session.client, key), question)


def _key(session: Session, given: str) -> str:
    """For the gateway: the one that was given, else that of the login."""
    key = given.strip() or session.key
    if not is_key(key):
        raise ApiError(401, "wrong_key", NO_KEY)
    return key


def _answer_stock(
    session: Session, prompt: str, max_tokens: float, temperature: float, seed: float | None, key: str
) -> Any:
    if not prompt.strip():
        return (note("Give a prompt.", "bad"), *(gr.skip() for _ in range(5)), None)
    question = replace(_question(prompt, max_tokens, temperature, seed), is_stock=True)
    try:
        answer = _ask(session, key, question)
    except ApiError as error:
        # None tells the second event that there is nothing to compare with.
        return (problem(error), "", "", "", "", gr.Plot(visible=False), None)
    said = note("The profile answers now.")
    return said, _facts_html(answer), answer.text, "", "", gr.Plot(visible=False), answer.content()


def _answer_profile(
    session: Session,
    prompt: str,
    max_tokens: float,
    temperature: float,
    seed: float | None,
    key: str,
    before: dict[str, Any] | None,
) -> Any:
    if before is None:
        return tuple(gr.skip() for _ in range(7))
    stock = Answer(**before)
    answer = _ask(session, key, _question(prompt, max_tokens, temperature, seed))
    rates = [("stock", stock.tokens_per_s), ("profile", answer.tokens_per_s)]
    said = verdict_html(stock, answer)
    plot = gr.Plot(answers_plot(rates), visible=True)
    return said, gr.skip(), gr.skip(), _facts_html(answer), answer.text, plot, before


def _view_code(
    session: Session, prompt: str, max_tokens: float, temperature: float, seed: float | None, key: str
) -> Any:
    model = find_model(session.client, _key(session, key))
    question = _question(prompt, max_tokens, temperature, seed)
    said = note("The request of the profile; for stock add speculation: {drafter: none}.")
    codes = (write(session.client, model, question) for write in (python_code, curl_code))
    return said, *(gr.Code(code, visible=True) for code in codes)


def _facts_html(answer: Answer) -> Markup:
    tau = "drafter " + (answer.drafter or "not reported")
    tokens = f"{answer.num_tokens} tokens, ended by {answer.finish_reason}"
    return cards(
        [
            ("Tokens/s", answer.tokens_per_s, tokens),
            ("Accept length tau", answer.tau, tau),
            ("First text", f"{answer.first_ms:,.0f} ms", f"whole answer {answer.total_ms:,.0f} ms"),
        ]
    )


def verdict_html(stock: Answer, profile: Answer) -> Markup:
    """Whether the two texts are equal, and the ratio of their rates."""
    same = stock.text == profile.text
    word = badge("same text", "good") if same else badge("texts differ", "busy")
    ratio = ""
    if stock.tokens_per_s and profile.tokens_per_s:
        ratio = f" The profile is {profile.tokens_per_s / stock.tokens_per_s:.2f} times as fast in this pair."
    why = "" if same else " One pair proves nothing: arithmetic varies with batch shape, sampling with draws."
    return Markup(f'<div class="sp-note" role="status">{word}{escape(ratio + why)}</div>')
