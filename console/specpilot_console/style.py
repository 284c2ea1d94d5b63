"""Looks of the console: Gradio's own variables, so light and dark follow the system without further rules.

Margins and borders are marked important where Gradio sets those of everything inside an HTML component to 0.
"""

from __future__ import annotations

__all__ = ["CSS"]

CSS = """
.gradio-container { --sp-muted: #5b616b; max-width: 1500px !important; width: 100% !important; margin: 0 auto; }
.dark .gradio-container, .gradio-container.dark { --sp-muted: #a5abb6; }
.sp-scroll, .sp-cards, .sp-facts, .sp-note, .sp-steps, .sp-heading, .sp-head { font-family: var(--font); }
.sp-head { display: flex; align-items: center; gap: 14px; padding: 4px 2px; }
.sp-head .sp-name { font-size: 20px; font-weight: 650; letter-spacing: -0.01em; }
.sp-head .sp-who { margin-left: auto; color: var(--sp-muted); }
.sp-head button { padding: 4px 12px; border-radius: 6px; border: 1px solid var(--border-color-primary);
  background: var(--button-secondary-background-fill); color: var(--body-text-color); cursor: pointer;
  font-size: 13px !important; font-weight: 500 !important; }
.sp-cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(160px, 1fr)); gap: 12px; }
@media (min-width: 900px) { .sp-cards.sp-wide { grid-template-columns: repeat(4, 1fr); } }
.sp-card { border: 1px solid var(--border-color-primary); border-radius: 10px; padding: 12px 14px;
  background: var(--block-background-fill); min-height: 92px; }
.sp-title { font-size: 12px; color: var(--sp-muted); }
.sp-value { font-size: 22px; font-weight: 600; line-height: 1.4; overflow-wrap: anywhere; }
.sp-value.sp-long { font-size: 15px; padding: 5px 0; }
.sp-small { font-size: 12px; color: var(--sp-muted); overflow-wrap: anywhere; }
.sp-badge { display: inline-block; padding: 1px 9px; border-radius: 999px; font-size: 12px; font-weight: 600;
  margin: 1px 0 !important; white-space: nowrap; line-height: 1.6; border: 1px solid currentColor;
  vertical-align: middle; }
.sp-value .sp-badge { font-size: 16px; }
.sp-badge.sp-good { color: #15803d; } .dark .sp-badge.sp-good { color: #4ade80; }
.sp-badge.sp-bad { color: #b91c1c; } .dark .sp-badge.sp-bad { color: #f87171; }
.sp-badge.sp-busy { color: #b45309; } .dark .sp-badge.sp-busy { color: #fbbf24; }
.sp-badge.sp-plain { color: var(--sp-muted); }
.sp-scroll { overflow-x: auto; max-height: 430px; overflow-y: auto; margin: 4px 0 12px !important; }
.sp-badges { display: inline-flex; flex-wrap: wrap; gap: 2px 4px; }
.sp-end { align-items: flex-end; }
.sp-picture { display: block; max-width: 100%; margin: 8px 0 12px !important; border-radius: 8px;
  border: 1px solid var(--border-color-primary) !important; }
.dark .sp-picture { filter: invert(0.93) hue-rotate(180deg); border: 0 !important; }
.gradio-container .block:has(.prose.gradio-style:empty) { display: none; }
.sp-table { width: 100%; border-collapse: collapse; font-size: 13px; margin: 0 !important; border: 0 !important; }
.sp-table thead, .sp-table tbody, .sp-table tr { border: 0 !important; }
.sp-table th { text-align: left; font-weight: 600; white-space: nowrap; color: var(--sp-muted);
  position: sticky; top: 0;  background: var(--block-background-fill); }
.sp-table th, .sp-table td { padding: 6px 10px !important; border: 0 !important; vertical-align: top;
  border-bottom: 1px solid var(--border-color-primary) !important; overflow-wrap: break-word; }
.sp-table td { color: var(--body-text-color); }
.sp-nowrap { white-space: nowrap; }
.sp-text { display: inline-block; min-width: 180px; }
.sp-log { font: 12px/1.5 var(--font-mono); white-space: pre-wrap; overflow: auto; max-height: 560px; padding: 10px 12px;
  border: 1px solid var(--border-color-primary); border-radius: 8px; background: var(--block-background-fill);
  color: var(--body-text-color); margin: 0; }
.sp-facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; font-size: 13px;
  margin: 4px 0 10px !important; }
.sp-facts dt { color: var(--sp-muted); } .sp-facts dd { margin: 0; overflow-wrap: anywhere; }
.sp-heading { font-size: 15px; font-weight: 600; margin: 10px 0 4px !important; }
.sp-note { border: 1px solid var(--border-color-primary) !important; border-left: 4px solid var(--sp-muted) !important;
  border-radius: 4px 8px 8px 4px; margin: 4px 0 !important; padding: 9px 13px; font-size: 14px;
  overflow-wrap: anywhere; }
.sp-note.sp-bad { border-left-color: #dc2626 !important; }
.sp-note.sp-good { border-left-color: #16a34a !important; }
.sp-bar { height: 10px; border-radius: 999px; overflow: hidden; margin: 8px 0 4px; position: relative;
  border: 1px solid var(--border-color-primary); background: var(--background-fill-secondary); }
.sp-bar > div { height: 100%; background: #2563eb; transition: width .5s; }
.sp-bar.sp-paused > div { background: repeating-linear-gradient(45deg, #b45309 0 8px, transparent 8px 16px); }
.sp-bar.sp-moving > div { width: 30% !important; animation: sp-move 1.6s linear infinite; }
@keyframes sp-move { from { transform: translateX(-100%); } to { transform: translateX(340%); } }
.sp-steps { display: flex; flex-wrap: wrap; gap: 6px; list-style: none; padding: 0; margin: 6px 0; }
.sp-steps li { padding: 4px 12px; border-radius: 999px; font-size: 13px; margin: 0;
  border: 1px solid var(--border-color-primary); color: var(--sp-muted); }
.sp-steps li.sp-done { color: var(--body-text-color); background: var(--background-fill-secondary); }
.sp-steps li.sp-at { font-weight: 650; color: #fff; border-color: transparent; background: #b45309; }
.sp-steps li.sp-at.sp-good { background: #15803d; } .sp-steps li.sp-at.sp-bad { background: #b91c1c; }
"""
