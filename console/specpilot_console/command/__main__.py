"""``python -m specpilot_console.command``: one verb, its answer, its exit code."""

from __future__ import annotations

import sys

from specpilot_console.command.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
