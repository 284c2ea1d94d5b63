"""LangChain's ``ChatOpenAI`` against the real server: whole, streamed, batched, asynchronous, with a conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from tests.service.live_server import LiveServer

langchain_openai: Any = pytest.importorskip(
    "langchain_openai", reason="langchain-openai is not installed; pip install -e '.[clients]'"
)
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"
NUM_TOKENS = 24


def chat(server: LiveServer, model: str, **options: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        base_url=f"{server.url}/v1",
        api_key="none",
        model=model,
        max_retries=0,
        **{"temperature": 0, "max_tokens": NUM_TOKENS, **options},
    )


@pytest.fixture(scope="module")
def expected(bundled_engine: Engine) -> str:
    """The engine's own answer."""
    ids = bundled_engine.apply_chat_template([{"role": "user", "content": QUESTION}])
    request = GenerateRequest(ids, SamplingParams(max_new_tokens=NUM_TOKENS))
    return "".join(chunk.text for chunk in bundled_engine.generate(request))


def test_invoke(server: LiveServer, model: str, expected: str) -> None:
    answer = chat(server, model).invoke(QUESTION)
    assert answer.content == expected
    assert answer.usage_metadata["output_tokens"] == NUM_TOKENS
    assert answer.response_metadata["model_name"] == model
    assert answer.response_metadata["finish_reason"] == "length"


def test_stream(server: LiveServer, model: str, expected: str) -> None:
    parts = list(chat(server, model, stream_usage=True).stream(QUESTION))
    assert "".join(part.content for part in parts) == expected
    assert len([part for part in parts if part.content]) > 2
    usages = [part.usage_metadata for part in parts if part.usage_metadata]
    assert [usage["output_tokens"] for usage in usages] == [NUM_TOKENS]


def test_asynchronous_stream_and_batch(server: LiveServer, model: str, expected: str) -> None:
    async def run() -> tuple[str, list[str]]:
        llm = chat(server, model)
        streamed = "".join([part.content async for part in llm.astream(QUESTION)])
        answers = await llm.abatch([QUESTION, "Say hello.", QUESTION])
        return streamed, [answer.content for answer in answers]

    streamed, answers = asyncio.run(run())
    assert streamed == answers[0] == answers[2] == expected != answers[1]


def test_a_conversation_is_sent_back(server: LiveServer, model: str, bundled_engine: Engine) -> None:
    llm = chat(server, model)
    first = llm.invoke([("system", "Answer briefly."), ("human", QUESTION)])
    second = llm.invoke(
        [("system", "Answer briefly."), ("human", QUESTION), first, ("human", "And one more?")]
    )
    ids = bundled_engine.apply_chat_template(
        [
            {"role": "system", "content": "Answer briefly."},
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": "And one more?"},
        ]
    )
    assert second.usage_metadata["input_tokens"] == len(ids)


def test_sampling_options_logprobs_and_the_choice_of_a_drafter(
    server: LiveServer, model: str, expected: str
) -> None:
    llm = chat(
        server,
        model,
        seed=5,
        stop=["Step 2"],
        logprobs=True,
        top_logprobs=2,
        extra_body={"speculation": {"drafter": "suffix"}},
    )
    answer = llm.invoke(QUESTION)
    assert "Step 2" in expected and answer.content == expected.split("Step 2")[0]
    entries = answer.response_metadata["logprobs"]["content"]
    assert entries and all(len(entry["top_logprobs"]) == 2 for entry in entries)


def test_structured_output(server: LiveServer, model: str) -> None:
    schema = {
        "title": "count",
        "description": "A number of apples.",
        "type": "object",
        "properties": {"is_known": {"type": "boolean"}, "digit": {"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}},
        "required": ["is_known", "digit"],
        "additionalProperties": False,
    }
    llm = chat(server, model, max_tokens=64).with_structured_output(schema, method="json_schema")
    answer = llm.invoke(QUESTION)
    assert answer.keys() == {"is_known", "digit"}
    assert isinstance(answer["is_known"], bool) and answer["digit"] in range(10)
