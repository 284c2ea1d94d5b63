"""The pictures of the console's README are those that its script takes, of tabs that there are."""

from __future__ import annotations

import re

from specpilot_console.tabs import TABS
from tests.source_tree import REPO

CONSOLE = REPO / "console"
SCRIPT = (CONSOLE / "screenshots" / "take.py").read_text(encoding="utf-8")


def test_the_readme_shows_what_the_script_takes() -> None:
    readme = (CONSOLE / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(screenshots/([\w-]+\.png)\)", readme))
    taken = set(re.findall(r'to / "([\w-]+\.png)"', SCRIPT))
    kept = {path.name for path in (CONSOLE / "screenshots").glob("*.png")}
    assert shown == taken == kept and len(shown) >= 5


def test_the_script_opens_tabs_that_there_are() -> None:
    opened = set(re.findall(r'\.open\("([\w ]+)"\)', SCRIPT))
    assert len(opened) >= 5 and opened <= {name for name, _ in TABS}
