"""The corpus: sources, overlap filter, and a small build from end to end."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from specpilot.errors import ConfigError
from specpilot.models.chat import ASSISTANT, END_OF_TEXT, IM_START, SPECIAL_TOKENS, render_chat
from specpilot.models.train import sources
from specpilot.models.train.corpus import PROMPT_SHARES, SOURCES, build_corpus, main
from specpilot.models.train.overlap import OverlapFilter, normalised_words
from specpilot.models.train.tokenizer import load_tokenizer

_PROBLEMS = [
    {"prompt": f"Ann has {n} pens and buys {n + 1} more. How many pens does she have?",
     "answer": f"She has {n} + {n + 1} = <<{n}+{n + 1}={2 * n + 1}>>{2 * n + 1} pens.\n#### {2 * n + 1}"}
    for n in range(2, 60)
]  # fmt: skip
_HELD_OUT = "Ann has 7 pens and buys 8 more. How many pens does she have?"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "gsm8k_train.jsonl").write_text("".join(json.dumps(p) + "\n" for p in _PROBLEMS))
    (folder / "held_out.jsonl").write_text(json.dumps({"prompt": _HELD_OUT, "answer": None}) + "\n")
    docs = folder / "docs" / "library"
    docs.mkdir(parents=True)
    (docs / "sample.rst.txt").write_text("Sample\n======\n\n" + "The module provides functions. " * 30)
    library = folder / "library"
    library.mkdir()
    for name in ("textwrap", "heapq", "bisect", "fractions", "statistics", "dataclasses", "shutil", "random"):
        shutil.copy(sources.default_library_folder() / f"{name}.py", library)
    (library / "test").mkdir()
    (library / "test" / "test_skipped.py").write_text('"""Never read."""\n' + "assert True\n" * 50)
    return folder


@pytest.fixture(scope="module")
def built(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus")
    build_corpus(data, data / "docs", [data / "held_out.jsonl"], out, library=data / "library", scale=0.02)
    return out


def test_word_problems_come_once_as_they_are_and_in_variants_of_one_family(data: Path) -> None:
    documents = list(sources.word_problems(data / "gsm8k_train.jsonl", seed=3))
    first = documents[0]
    assert first.chat[0][1] == _PROBLEMS[0]["prompt"]
    assert first.chat[1] == ("assistant", "Step 1: 2 + 3 = 5.\nThe answer is 5.")
    assert len(documents) > 4 * len(_PROBLEMS)
    family = [document for document in documents if document.family == first.family]
    assert len({document.chat[0][1] for document in family}) == len(family) > 4
    assert len({document.split_digest for document in family}) == 1
    assert documents == list(sources.word_problems(data / "gsm8k_train.jsonl", seed=3))


def test_word_problem_with_wrong_marks_is_left_out(tmp_path: Path) -> None:
    records = [
        {"prompt": "What is 2 and 2?", "answer": "It is <<2+2=5>>5.\n#### 5"},
        {"prompt": "What is 2 and 3?", "answer": "It is <<2+3=5>>5.\n#### 6"},
        {"prompt": "What is two?", "answer": "It is two.\n#### 2"},
    ]
    path = tmp_path / "wrong.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert list(sources.word_problems(path, seed=0)) == []


def test_word_problem_without_final_mark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"prompt": "p", "answer": "no mark"}) + "\n")
    with pytest.raises(ConfigError, match=r"bad\.jsonl:1.*####"):
        list(sources.word_problems(path, seed=0))


def test_library_chats_hold_real_code(data: Path) -> None:
    documents = list(sources.stdlib_chats(data / "library", seed=3))
    families = {document.family for document in documents}
    assert len(families) > 50 and len(documents) > 2 * len(families)
    for document in documents:
        (_, stub), (_, answer) = document.chat
        code = answer.removeprefix("```python\n").removesuffix("\n```")
        ast.parse(code)
        assert code.startswith(stub.rstrip("\n")) and len(code) > len(stub)


def test_library_files_leave_out_tests(data: Path) -> None:
    texts = [document.text for document in sources.stdlib_files(data / "library")]
    assert len(texts) == 8
    assert not any("Never read." in text for text in texts)
    assert (sources.default_library_folder() / "ast.py").is_file()


def test_overlap_finds_long_runs_and_whole_short_texts_only() -> None:
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    held_out = OverlapFilter([long, "Write a function to add numbers.", "too short"])
    assert held_out.overlaps(
        "Zero ONE, two three; four five six seven eight nine ten eleven twelve thirteen!"
    )
    assert not held_out.overlaps("one two three four five six seven eight nine ten eleven twelve")
    assert held_out.overlaps("Please write a function to add numbers now")
    assert not held_out.overlaps("write a function to add two numbers; this is too short")
    assert held_out.num_grams == 3


def test_words_are_normalised() -> None:
    assert normalised_words("Don't_stop: $3.50, ÉTÉ") == ["don", "t", "stop", "3", "50", "été"]


def test_exclusion_file_without_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": 3}\n')
    with pytest.raises(ConfigError, match="no text in the fields"):
        OverlapFilter.from_files([path])


def test_manifest_describes_the_files(built: Path) -> None:
    manifest = json.loads((built / "corpus.json").read_text())
    for name, record in manifest["files"].items():
        content = (built / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (record["bytes"], record["sha256"])
    tokens = np.fromfile(built / "train.bin", dtype="<u2")
    assert (
        tokens.size
        == manifest["train_tokens"]
        == sum(s["train_tokens"] for s in manifest["sources"].values())
    )
    assert set(manifest["sources"]) == set(SOURCES)
    assert manifest["sources"]["gsm8k_train"]["dropped_for_overlap"] >= 1
    assert manifest["special_tokens"] == {token: index for index, token in enumerate(SPECIAL_TOKENS)}


def test_streams_are_whole_documents_without_held_out_text(built: Path) -> None:
    tokenizer = load_tokenizer(built / "tokenizer")
    stop = SPECIAL_TOKENS.index(END_OF_TEXT)
    held_out = OverlapFilter([_HELD_OUT])
    contents = {}
    for name in ("train", "valid"):
        tokens = np.fromfile(built / f"{name}.bin", dtype="<u2")
        assert tokens[-1] == stop and tokens.max() < 4096
        pieces = np.split(tokens, np.flatnonzero(tokens == stop) + 1)[:-1]
        contents[name] = {
            tokenizer.decode(piece[:-1].tolist(), skip_special_tokens=False) for piece in pieces
        }
        assert not any(held_out.overlaps(text) for text in contents[name])
    assert contents["train"].isdisjoint(contents["valid"])
    # A known chat is in there exactly as the template renders it.
    rendered = render_chat(
        [
            {"role": "user", "content": str(_PROBLEMS[3]["prompt"])},
            {"role": "assistant", "content": "Step 1: 5 + 6 = 11.\nThe answer is 11."},
        ]
    )
    assert rendered in contents["train"] | contents["valid"]


def test_prompts_end_where_the_answer_begins(built: Path) -> None:
    tokenizer = load_tokenizer(built / "tokenizer")
    with np.load(built / "chat_prompts.npz") as file:
        ids, offsets, kinds = file["ids"], file["offsets"], file["kinds"]
        names = list(file["kind_names"])
    assert offsets[0] == 0 and offsets[-1] == ids.size and (np.diff(offsets.astype(np.int64)) > 0).all()
    assert kinds.size == offsets.size - 1 and {"gsm8k_train", "dialogue", "python_code"} <= {
        names[k] for k in kinds
    }
    shares = {name: (kinds == k).mean() for k, name in enumerate(names)}
    assert shares == pytest.approx(PROMPT_SHARES, abs=0.02)
    assert np.diff(offsets.astype(np.int64)).max() <= 256
    for index in range(0, kinds.size, 200):
        prompt = ids[offsets[index] : offsets[index + 1]].tolist()
        assert prompt[0] == SPECIAL_TOKENS.index(IM_START)
        text = tokenizer.decode(prompt, skip_special_tokens=False)
        assert text.endswith(f"{IM_START}{ASSISTANT}\n")


def test_same_inputs_give_the_same_bytes(data: Path, built: Path, tmp_path: Path) -> None:
    build_corpus(
        data, data / "docs", [data / "held_out.jsonl"], tmp_path, library=data / "library", scale=0.02
    )
    first = json.loads((built / "corpus.json").read_text())
    assert json.loads((tmp_path / "corpus.json").read_text()) == first


def test_an_existing_tokenizer_is_copied_unchanged(data: Path, built: Path, tmp_path: Path) -> None:
    manifest = build_corpus(
        data, None, [], tmp_path, library=data / "library", reused_tokenizer=built / "tokenizer", scale=0.001
    )
    assert manifest["tokenizer"] == "reused"
    for path in (built / "tokenizer").iterdir():
        assert (tmp_path / "tokenizer" / path.name).read_bytes() == path.read_bytes()


def test_command_line_refuses_missing_docs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--data", str(data), "--out", str(tmp_path), "--docs", str(tmp_path / "nowhere")])
    assert code == 2
    assert "--allow-missing-docs" in capsys.readouterr().err


def test_command_line_refuses_missing_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path), "--out", str(tmp_path), "--docs", str(tmp_path)]) == 2
    assert "gsm8k_train.jsonl is missing" in capsys.readouterr().err
