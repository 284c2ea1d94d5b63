"""The tokenizer of a GGUF file against byte-pair merging written out, and its chat template in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.errors import CheckpointError, RequestError
from specpilot.models.gguf.reader import GgufFile
from specpilot.models.gguf.tokenizer import read_tokenizer
from specpilot.refengine.tokenizer import ChatTokenizer
from tests.oracles.byte_pairs import merge_slowly
from tests.specpilot.models.tiny_gguf import CONTROL, MERGES, byte_symbols, tiny_model

TEXTS = (
    "hello world 1212 singing  in",
    "Ünïcode 你好 😀\n\tdef f(x): return x # <|im_end|> 3.14",
    "   leading, inner   and trailing   ",
    "it's we'll ١٢ ½ hellohello",
)


def read(folder: Path, **changes: object) -> ChatTokenizer:
    tiny = tiny_model()
    tiny.blocks.clear()
    tiny.metadata.update({f"tokenizer.{key}": value for key, value in changes.items()})
    return read_tokenizer(GgufFile(tiny.write(folder / "tokenizer.gguf")))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("pre", ["smollm", "gpt-2"])
def test_ids_are_those_of_merging_by_rank(tmp_path: Path, text: str, pre: str) -> None:
    tokenizer = read(tmp_path, **{"ggml.pre": pre})
    tokens = [*CONTROL, *byte_symbols(), *(merge.replace(" ", "") for merge in MERGES)]
    expected = merge_slowly(text, tokens, MERGES, has_single_digits=pre == "smollm")
    assert tokenizer.encode(text) == expected
    assert tokenizer.decode(expected) == text


def test_the_two_ways_of_cutting_differ_in_digits(tmp_path: Path) -> None:
    """The comparison can fail: 12 is a merge, and one way of cutting never gets to it."""
    assert len(read(tmp_path).encode("12")) == 2
    assert len(read(tmp_path, **{"ggml.pre": "gpt-2"}).encode("12")) == 1


def test_a_chat_is_what_the_template_says(tmp_path: Path) -> None:
    tokenizer = read(tmp_path)
    ids = tokenizer.encode_chat([{"role": "user", "content": "hello <|im_end|>"}])
    assert ids[0] == 1 and ids.count(1) == 3 and ids.count(2) == 2  # the content's is plain text
    visible = tokenizer.decode(ids)
    assert visible == "system\nBe brief.\nuser\nhello <|im_end|>\nassistant\n"
    with_system = tokenizer.encode_chat(
        [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    )
    assert tokenizer.decode(with_system) == "system\nx\nuser\ny\nassistant\n"


def test_a_template_may_name_special_tokens_and_refuse_a_chat(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.content }}{{ eos_token }}{% endfor %}"
    )
    tokenizer = read(tmp_path, chat_template=template)
    user = {"role": "user", "content": "a"}
    assert tokenizer.encode_chat([user]) == [1, *tokenizer.encode("a"), 2]
    with pytest.raises(RequestError, match="refuses them: no system") as error:
        tokenizer.encode_chat([{"role": "system", "content": "b"}, user])
    assert error.value.param == "messages"


def test_a_template_that_drops_a_message_refuses_that_chat(tmp_path: Path) -> None:
    template = "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    tokenizer = read(tmp_path, chat_template=template)
    with pytest.raises(RequestError, match="does not give every message once"):
        tokenizer.encode_chat([{"role": "system", "content": "b"}, {"role": "user", "content": "a"}])


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append({}) }}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for x in %}",
        "one for all",
    ],
)
def test_a_template_that_reaches_out_or_is_broken_is_refused(tmp_path: Path, template: str) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.chat_template"):
        read(tmp_path, chat_template=template)
