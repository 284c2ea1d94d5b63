"""``python -m specpilot.models.train.corpus``: collect, filter, tokenise and write the training corpus.

Steps, each a function below: collect documents from every source, drop overlaps with held-out files and repeats, train
the tokenizer on a balanced part or take an existing one, encode, repeat or thin each source to its weight, order by
hash, choose prompts in fixed shares, write.

Files under ``--out``: ``train.bin`` and ``valid.bin`` (uint16 little-endian ids, every document ended by
``<|endoftext|>``), ``chat_prompts.npz`` (``ids`` uint16, ``offsets`` uint32 (num_prompts + 1), ``kinds`` uint8 into
``kind_names``), ``tokenizer/`` and, last, the manifest ``corpus.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from specpilot.errors import ConfigError
from specpilot.models.chat import ASSISTANT, END_OF_TEXT, IM_END, IM_START, SPECIAL_TOKENS
from specpilot.models.train import sources
from specpilot.models.train.generators import KINDS
from specpilot.models.train.overlap import GRAM_WORDS, OverlapFilter
from specpilot.models.train.sources import Document
from specpilot.models.train.tokenizer import encode_plain, load_tokenizer, save_tokenizer, train_tokenizer

__all__ = ["PROMPT_SHARES", "SOURCES", "Source", "build_corpus", "collect", "main"]

_FORMAT_VERSION: Final = 2
_SEED: Final = 20261129
# The first byte of a document's split hash below this sends it to valid.bin: 3 of 256.
_VALID_BELOW: Final = 3
_TOKENIZER_BYTES_PER_SOURCE: Final = 2_500_000
_MAX_PROMPT_TOKENS: Final = 256
_BATCH: Final = 4096


@dataclass(frozen=True)
class Source:
    """How much of a source goes in.

    Attributes
    ----------
    weight
        Copies of each training document; a fraction keeps that share of them (by hash) once more.
    generated_bytes
        Target size for generators, 0 for collected text.
    """

    weight: float
    generated_bytes: int = 0


SOURCES: Final[dict[str, Source]] = {
    "gsm8k_train": Source(weight=1.0),
    "stdlib_functions": Source(weight=1.0),
    "stdlib_code": Source(weight=0.35),
    "python_docs": Source(weight=0.4),
    "school_math": Source(weight=1.0, generated_bytes=10_000_000),
    "competition_math": Source(weight=1.0, generated_bytes=14_000_000),
    "python_code": Source(weight=1.0, generated_bytes=16_000_000),
    "dialogue": Source(weight=1.0, generated_bytes=11_000_000),
    "repetition": Source(weight=1.0, generated_bytes=5_500_000),
    "general_advice": Source(weight=1.0, generated_bytes=11_000_000),
}
# What each source contributes to the prompts that the drafter is trained on.
PROMPT_SHARES: Final = {
    "gsm8k_train": 0.35,
    "general_advice": 0.15,
    "python_code": 0.14,
    "stdlib_functions": 0.06,
    "competition_math": 0.12,
    "school_math": 0.08,
    "dialogue": 0.07,
    "repetition": 0.03,
}
_MAX_PROMPTS: Final = 90_000
_NOTES: Final = (
    "gsm8k_train keeps the problems; their written solutions are left out, answers are the calculator marks in "
    "regular form, each problem once and in variants with other numbers and names"
)


def collect(
    data: Path, docs: Path | None, library: Path, *, scale: float = 1.0, seed: int = _SEED
) -> Iterator[Document]:
    """All documents of all sources; ``scale`` shrinks the generated part (for tests)."""
    yield from sources.word_problems(data / "gsm8k_train.jsonl", seed=seed)
    yield from sources.stdlib_chats(library, seed=seed)
    yield from sources.stdlib_files(library)
    if docs is not None:
        yield from sources.documentation(docs)
    for kind in KINDS:
        yield from sources.generated(kind, seed=seed, target_bytes=int(SOURCES[kind].generated_bytes * scale))


def _select(
    documents: Iterable[Document], held_out: OverlapFilter
) -> tuple[list[tuple[bytes, Document]], Counter[str], Counter[str]]:
    """Drop overlapping and repeated documents; the rest comes sorted by hash."""
    overlapping: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    kept: dict[bytes, Document] = {}
    for document in documents:
        if held_out.overlaps(document.content):
            overlapping[document.source] += 1
        elif document.digest in kept:
            repeated[document.source] += 1
        else:
            kept[document.digest] = document
    return sorted(kept.items(), key=lambda item: item[0]), overlapping, repeated


def _tokenizer_texts(documents: Sequence[tuple[bytes, Document]]) -> Iterator[str]:
    """The first documents of each source up to a fixed size, so that code, mathematics and prose weigh alike."""
    taken: Counter[str] = Counter()
    for _, document in documents:
        if document.split_digest[0] >= _VALID_BELOW and taken[document.source] < _TOKENIZER_BYTES_PER_SOURCE:
            taken[document.source] += len(document.content.encode())
            yield document.content


@dataclass(frozen=True)
class _Encoded:
    ids: np.ndarray  # uint16, the whole document with its end mark
    prompts: tuple[np.ndarray, ...]  # uint16, up to each assistant turn


def _encode(tokenizer: Tokenizer, documents: Sequence[Document]) -> Iterator[_Encoded]:
    """Encode in batches; chat ids equal ``tokenizer.encode_chat`` (a test compares them)."""
    start, end, stop = (SPECIAL_TOKENS.index(token) for token in (IM_START, IM_END, END_OF_TEXT))
    newline, opening = encode_plain(tokenizer, ["\n", f"{ASSISTANT}\n"])
    for begin in range(0, len(documents), _BATCH):
        batch = documents[begin : begin + _BATCH]
        texts = [f"{role}\n{content}" for document in batch for role, content in document.chat]
        turns = iter(encode_plain(tokenizer, texts))
        plain = iter(encode_plain(tokenizer, [document.text for document in batch if not document.chat]))
        for document in batch:
            if not document.chat:
                yield _Encoded(np.array([*next(plain), stop], dtype=np.uint16), ())
                continue
            ids: list[int] = []
            prompts = []
            for role, _ in document.chat:
                if role == ASSISTANT:
                    prompts.append(np.array([*ids, start, *opening], dtype=np.uint16))
                ids += [start, *next(turns), end, *newline]
            yield _Encoded(np.array([*ids, stop], dtype=np.uint16), tuple(prompts))


def _copies(digest: bytes, weight: float) -> int:
    whole = int(weight)
    return whole + (int.from_bytes(digest[1:4], "little") / 2**24 < weight - whole)


def _choose_prompts(prompts: Sequence[tuple[bytes, str, np.ndarray]]) -> list[tuple[str, np.ndarray]]:
    """As many prompts as the shares allow, ordered by hash."""
    available = Counter(kind for _, kind, _ in prompts)
    present = {kind: share for kind, share in PROMPT_SHARES.items() if available[kind]}
    total = min(_MAX_PROMPTS, *(available[kind] / share for kind, share in present.items()))
    room = {kind: round(total * share) for kind, share in present.items()}
    chosen = []
    for _, kind, prompt in sorted(prompts, key=lambda item: item[0]):
        if room[kind]:
            room[kind] -= 1
            chosen.append((kind, prompt))
    return chosen


def _file_record(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _write_tokens(path: Path, parts: Sequence[np.ndarray]) -> int:
    tokens = np.concatenate(parts).astype("<u2")
    tokens.tofile(path)
    return int(tokens.size)


def build_corpus(
    data: Path,
    docs: Path | None,
    exclude: Sequence[Path],
    out: Path,
    *,
    library: Path | None = None,
    reused_tokenizer: Path | None = None,
    scale: float = 1.0,
    seed: int = _SEED,
) -> dict[str, Any]:
    """Build everything under ``out`` and return the manifest.

    ``library`` is the folder of Python modules to read, the running interpreter's standard library when None.
    ``reused_tokenizer`` is a folder whose tokenizer is copied instead of training a new one, so that ids stay.

    Raises
    ------
    ConfigError
        If an input is missing or malformed.
    """
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:6.1f} s] {text}", file=sys.stderr, flush=True)

    held_out = OverlapFilter.from_files(exclude)
    say(f"{held_out.num_grams} held-out {GRAM_WORDS}-word runs from {len(exclude)} files")
    documents, overlapping, repeated = _select(
        collect(data, docs, library or sources.default_library_folder(), scale=scale, seed=seed), held_out
    )
    say(
        f"{len(documents)} documents, {overlapping.total()} dropped for overlap, {repeated.total()} as repeats"
    )
    if reused_tokenizer is None:
        save_tokenizer(train_tokenizer(_tokenizer_texts(documents)), out / "tokenizer")
        say("tokenizer trained")
    else:
        shutil.copytree(reused_tokenizer, out / "tokenizer", dirs_exist_ok=True)
    tokenizer = load_tokenizer(out / "tokenizer")

    parts: dict[str, list[tuple[bytes, np.ndarray]]] = {"train": [], "valid": []}
    candidates: list[tuple[bytes, str, np.ndarray]] = []
    kinds = sorted({document.source for _, document in documents if document.chat})
    count: dict[str, Counter[str]] = {name: Counter() for name in SOURCES}
    for (digest, document), encoded in zip(
        documents, _encode(tokenizer, [d for _, d in documents]), strict=True
    ):
        seen = count[document.source]
        seen["documents"] += 1
        seen["bytes"] += len(document.content.encode())
        seen["tokens"] += encoded.ids.size
        if document.split_digest[0] < _VALID_BELOW:
            seen["valid_tokens"] += encoded.ids.size
            parts["valid"].append((digest, encoded.ids))
            continue
        for copy in range(_copies(digest, SOURCES[document.source].weight)):
            seen["train_tokens"] += encoded.ids.size
            parts["train"].append((hashlib.sha256(digest + bytes([copy])).digest(), encoded.ids))
        candidates += [
            (hashlib.sha256(b"prompt" + digest + bytes([turn])).digest(), document.source, prompt)
            for turn, prompt in enumerate(encoded.prompts)
            if prompt.size <= _MAX_PROMPT_TOKENS
        ]
    say("encoded")
    prompts = _choose_prompts(candidates)

    totals = {}
    for name, items in parts.items():
        items.sort(key=lambda item: item[0])
        totals[name] = _write_tokens(out / f"{name}.bin", [ids for _, ids in items])
    lengths = np.array([prompt.size for _, prompt in prompts], dtype=np.int64)
    np.savez_compressed(
        out / "chat_prompts.npz",
        ids=np.concatenate([prompt for _, prompt in prompts]).astype("<u2"),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype("<u4"),
        kinds=np.array([kinds.index(kind) for kind, _ in prompts], dtype=np.uint8),
        kind_names=np.array(kinds),
    )
    chat_sources = set(kinds)
    manifest = {
        "format_version": _FORMAT_VERSION,
        "seed": seed,
        "scale": scale,
        "python": platform.python_version(),
        "docs_included": docs is not None,
        "tokenizer": "trained" if reused_tokenizer is None else "reused",
        "notes": _NOTES,
        "exclusion": {
            "gram_words": GRAM_WORDS,
            "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in exclude},
        },
        "sources": {
            name: {
                **{
                    key: count[name][key]
                    for key in ("documents", "bytes", "tokens", "train_tokens", "valid_tokens")
                },
                "weight": source.weight,
                "dropped_for_overlap": overlapping[name],
                "dropped_as_repeats": repeated[name],
                "bytes_per_token": round(count[name]["bytes"] / max(count[name]["tokens"], 1), 3),
            }
            for name, source in SOURCES.items()
        },
        "train_tokens": totals["train"],
        "valid_tokens": totals["valid"],
        "chat_share_of_train_tokens": round(
            sum(count[name]["train_tokens"] for name in chat_sources) / totals["train"], 4
        ),
        "prompts": {kind: sum(1 for chosen, _ in prompts if chosen == kind) for kind in kinds},
        "special_tokens": {token: index for index, token in enumerate(SPECIAL_TOKENS)},
        "files": {
            str(path.relative_to(out)): _file_record(path)
            for path in sorted(
                [*out.glob("*.bin"), out / "chat_prompts.npz", *(out / "tokenizer").glob("*.json")]
            )
        },
    }
    (out / "corpus.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    say(f"{totals['train']} training tokens, {totals['valid']} held back, {len(prompts)} prompts")
    return manifest


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m specpilot.models.train.corpus", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with gsm8k_train.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="folder for the corpus")
    parser.add_argument(
        "--docs", type=Path, default=None, help="CPython Doc tree (default: Debian's pythonX.Y-doc)"
    )
    parser.add_argument(
        "--allow-missing-docs", action="store_true", help="go on without documentation sources"
    )
    parser.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="JSON-lines files of held-out text"
    )
    parser.add_argument(
        "--tokenizer", type=Path, default=None, help="folder of a tokenizer to reuse (default: train one)"
    )
    parser.add_argument("--seed", type=int, default=_SEED)
    given = parser.parse_args(arguments)
    docs: Path | None = given.docs or sources.default_docs_folder()
    try:
        if docs is not None and not docs.is_dir():
            if not given.allow_missing_docs:
                raise ConfigError(
                    f"no documentation sources at {docs}; "
                    "install pythonX.Y-doc, pass --docs DIR, or --allow-missing-docs"
                )
            print(f"going on without documentation sources: {docs} is missing", file=sys.stderr)
            docs = None
        given.out.mkdir(parents=True, exist_ok=True)
        build_corpus(
            given.data, docs, given.exclude, given.out, reused_tokenizer=given.tokenizer, seed=given.seed
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
