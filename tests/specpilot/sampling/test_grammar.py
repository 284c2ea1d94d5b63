"""JSON Schemas: right masks, right places, and no schema that costs more than it may."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence

import pytest
import torch

from specpilot.errors import EngineError, RequestError
from specpilot.sampling import GrammarCursor, JsonGrammars
from specpilot.sampling.schema_trial import MAX_SECONDS, try_grammar
from tests.oracles.array_grammar import END, SCHEMA, ArrayTokenizer, allowed_ids


class ByteTokenizer:
    """Every byte a token; 256 is end-of-text, 257 a special token."""

    vocab_size = 258

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


# Three ids more than the tokenizer knows, as models with a padded vocabulary have.
BYTES = JsonGrammars(ByteTokenizer(), 261, [256])


def allowed_of(cursor: GrammarCursor, vocab_size: int, path: Sequence[int] = ()) -> list[set[int]]:
    masked = cursor.mask(torch.zeros(len(path) + 1, vocab_size), path)
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in masked]


def is_accepted(schema: object, text: str) -> bool:
    """Whether byte after byte of ``text``, and its end there, are allowed."""
    cursor = BYTES.start(json.dumps(schema))
    for byte in [*text.encode(), 256]:
        if byte not in allowed_of(cursor, 261)[0]:
            return False
        cursor.advance([byte])
    return True


def test_masks_on_every_path_equal_the_regular_expressions() -> None:
    cursor = JsonGrammars(ArrayTokenizer(), 6, [END]).start(SCHEMA)
    for path in itertools.product(range(6), repeat=4):
        for index, allowed in enumerate(allowed_of(cursor, 6, path)):
            assert allowed == allowed_ids(path[:index]), path
            if index < 4 and (path[index] not in allowed or path[index] == END):
                break


def test_advance_ends_with_end_of_text() -> None:
    cursor = JsonGrammars(ArrayTokenizer(), 6, [END]).start(SCHEMA)
    cursor.advance([0, 2, 1, END, 3, 3])  # drafts behind the end may have been accepted; nobody reads them
    assert allowed_of(cursor, 6) == [set(range(6))]


def test_cursors_of_one_schema_are_independent() -> None:
    grammars = JsonGrammars(ArrayTokenizer(), 6, [END])
    one, other = grammars.start(SCHEMA), grammars.start(SCHEMA)
    one.advance([0, 2])
    assert allowed_of(one, 6) == [allowed_ids([0, 2])] and allowed_of(other, 6) == [{0}]


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "text", "is_right"),
    [
        (PERSON, '{"name":"Ann","age":7}', True),
        (PERSON, '{ "name": "Zo\u00eb \U0001f989", "age": 7 }', True),
        (PERSON, '{\n"name":"Ann","age":7}', False),  # no white space but single spaces
        (PERSON, '{"name":"Ann","age":-7}', False),
        (PERSON, '{"name":"Ann"}', False),
        (PERSON, '{"name":"Ann","age":7,"x":1}', False),
        (PERSON, '{"name":"' + "n" * 9 + '","age":7}', False),
        (PERSON, '{"name":  "Ann","age":7}', False),
        ({"type": "object"}, '{"a": [1, {"b": null}], "c": "\\n"}', True),
        ({"type": "object"}, "[1]", False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"enum": ["yes", "no"]}}}, '"no"', True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", True),
    ],
)
def test_answers(schema: object, text: str, is_right: bool) -> None:
    assert is_accepted(schema, text) is is_right
    assert not is_right or json.loads(text) is not Ellipsis


def test_special_and_padded_ids_are_never_allowed() -> None:
    cursor = BYTES.start('{"type": "string"}')
    cursor.advance(b'"')
    assert not allowed_of(cursor, 261)[0] & {256, 257, 258, 259, 260}


WRONG = [
    ("", "cannot be read"),
    ("{", "cannot be read"),
    ("[]", "no JSON object"),
    ("true", "no JSON object"),
    ('{"type": "strnig"}', "Invalid type"),
    ('{"not": {}}', "Unimplemented"),
    ('{"x-guidance": {"lenient": true}, "not": {}}', "Unimplemented"),
    ('{"$ref": "https://json-schema.org/elsewhere"}', "does not compile"),
    ('{"type": "string", "pattern": "(a"}', "regex"),
    ('{"type": "string", "pattern": "(?=a)b"}', "look-around"),
    ('{"enum": []}', "Unsatisfiable"),
    ('{"type": "string", "minLength": 5, "maxLength": 2}', "Unsatisfiable"),
    ('{"a":' * 5000 + "1" + "}" * 5000, "cannot be read"),
    (json.dumps({"enum": ["x" * 70_000]}), "65536"),
]


@pytest.mark.parametrize(("schema", "reason"), WRONG)
def test_wrong_schemas_are_refused_with_a_reason(schema: str, reason: str) -> None:
    for _ in range(2):  # the second time from memory
        with pytest.raises(RequestError, match=reason) as refused:
            BYTES.start(schema)
        assert (refused.value.param, refused.value.code) == ("response_format", "invalid_json_schema")
        assert len(str(refused.value)) < 500


def test_a_bomb_ends_in_its_own_process() -> None:
    """40 bytes that the compiler would work on for hours."""
    with pytest.raises(RequestError, match=f"within {MAX_SECONDS} s"):
        BYTES.start('{"type":"integer","multipleOf":123456789}')
    cursor = BYTES.start('{"type":"integer","multipleOf":7}')
    began = time.process_time()
    cursor.mask(torch.zeros(1, 261), [])
    assert time.process_time() - began < 60  # this process did not do the bomb's work


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "integer", "multipleOf": prime} for prime in (9973, 9967, 9949)]},
        {
            "allOf": [
                {"oneOf": [{"type": "string", "pattern": f"a{i}{j}"} for j in range(4)]} for i in range(12)
            ]
        },
    ],
)
def test_schemas_that_multiply_out_run_out_of_fuel(schema: object) -> None:
    with pytest.raises(RequestError, match="does not compile"):
        BYTES.start(json.dumps(schema))


def test_an_answer_that_needs_too_much_work_ends_with_a_reason() -> None:
    """After the first bracket any of 1,200 optional names may come next."""
    names = {f"property number {index}": {"type": "string"} for index in range(1200)}
    cursor = BYTES.start(json.dumps({"type": "object", "properties": names}))
    with pytest.raises(RequestError, match="too much work"):
        cursor.advance(b"{")


def test_a_token_the_mask_forbids_is_our_own_fault() -> None:
    with pytest.raises(EngineError, match="grammar"):
        BYTES.start('{"type": "integer"}').advance(b"x")


def test_a_grammar_that_is_fine_passes_its_trial() -> None:
    assert try_grammar('{"grammars": [{"json_schema": {"type": "object"}}]}') is None
