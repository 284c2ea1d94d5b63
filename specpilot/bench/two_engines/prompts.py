"""``python -m specpilot.bench.two_engines.prompts OUT SET.jsonl ...``: the prompts, as token ids."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from specpilot.models.folders import model_folders
from specpilot.refengine.tokenizer import ChatTokenizer
from specpilot.requests.reading import read_requests

__all__ = ["NUM_PROMPTS", "main", "write_prompts"]

NUM_PROMPTS = 100


def write_prompts(out: Path, sets: list[Path]) -> int:
    """First requests of every set, equally many of each; one JSON object a line: id, set, prompt_ids."""
    tokenizer = ChatTokenizer.from_folder(model_folders(None)[1])
    each = NUM_PROMPTS // len(sets)
    lines = []
    for path in sets:
        for request in read_requests(path, each):
            ids = tokenizer.encode_chat([{"role": "user", "content": request.turns[0]}])
            lines.append(json.dumps({"id": f"{path.stem}/{request.id}", "set": path.stem, "prompt_ids": ids}))
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def main() -> None:
    count = write_prompts(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    print(f"{count} prompts", file=sys.stderr)


if __name__ == "__main__":
    main()
