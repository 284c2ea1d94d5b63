"""Every setting of the service, from command-line flags or ``SPECPILOT_*`` variables; read nowhere else."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from specpilot.engines.base import NumericMode
from specpilot.engines.mechanisms import (
    MAX_TREE_NODES,
    BatchMechanisms,
    Builder,
    GdnForm,
    Mechanisms,
    QWeights,
)
from specpilot.errors import ConfigError

__all__ = ["ENV_PREFIX", "Settings", "load_settings", "read_settings"]

SettingsT = TypeVar("SettingsT", bound=BaseSettings)

ENV_PREFIX = "SPECPILOT_"


class Settings(BaseSettings):
    """Serve the OpenAI endpoint. Every flag is also a variable: --max-waiting is SPECPILOT_MAX_WAITING."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        cli_kebab_case=True,
        cli_prog_name="specpilot serve",
        cli_implicit_flags=True,
    )

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    model: Path | None = Field(
        default=None, description="folder of the target, or a GGUF file; default: the bundled model"
    )
    drafter: str | None = Field(
        default=None, min_length=1, description="drafter of requests that name none; 'none' decodes plainly"
    )
    mode: NumericMode = Field(
        default="serve", description="numeric mode: judge (batch invariant) or serve (fastest)"
    )
    num_threads: int | None = Field(
        default=None, ge=1, le=1024, description="threads of the engine; default: its choice"
    )
    max_running: int = Field(
        default=8, ge=1, le=64, description="requests that decode together; the next ones wait"
    )
    max_kv_tokens: int | None = Field(
        default=None,
        ge=1,
        description="tokens, prompts and longest answers together, that running requests may keep in memory; "
        "default: 4096 for each of them and at least one context length",
    )
    max_waiting: int = Field(
        default=64, ge=0, le=10_000, description="requests that may wait; more are answered 429"
    )
    builder: Builder = Field(
        default="chain",
        description="what requests verify of a draft: the drafter's chain, or a tree of this builder",
    )
    nodes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TREE_NODES,
        description="rows a request verifies in a step, root included; default: the drafter's block",
    )
    positions: int | None = Field(
        default=None,
        ge=1,
        description="positions a request drafts in a step; default: as the drafter was trained",
    )
    cost_aware: bool = Field(
        default=False,
        description="stop a tree where its next nodes cost more than they bring; measured at start",
    )
    gdn_form: GdnForm = Field(
        default="path", description="Gated DeltaNet layers of a tree: path (the bits of chains) or wy"
    )
    q_weights: QWeights | None = Field(
        default=None,
        description="two-level verification: the low-precision copy of the target that checks a first tree",
    )
    q_gate: bool = Field(
        default=False, description="leave the pass over the copy out where it has not paid lately"
    )
    certified_head: bool = Field(
        default=False, description="greedy tokens from an INT8 screen of the LM head, rescored exactly"
    )
    node_budget: int | None = Field(
        default=None, ge=1, description="nodes that all best_first trees of a step share, roots included"
    )
    drafter_blocks: bool = Field(
        default=False, description="draft 16, 12 or 8 rows a request by its recent acceptance and confidence"
    )
    whole_prompt_rows: int = Field(
        default=0,
        ge=0,
        description="prompts of up to so many tokens enter a step whole when they would wait; 0: never",
    )
    prompt_rows: int | None = Field(
        default=None, ge=1, description="prompt rows of a step, all requests together; default: the engine's"
    )
    max_body_bytes: int = Field(
        default=2 * 2**20, ge=1024, description="largest request body; larger ones are answered 413"
    )
    drain_timeout_s: float = Field(
        default=30.0, ge=0, le=86_400, description="how long SIGTERM waits for running requests"
    )
    stall_timeout_s: float = Field(
        default=60.0, gt=0, description="a client that takes no bytes for so long is cut off"
    )
    record: Path | None = Field(
        default=None,
        description="folder that gets a recording of every verify step, in a folder of this start; "
        "see `specpilot replay`",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severe log shown"
    )
    control_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="secret of whoever may change mechanisms while the engine runs; without one nobody may",
    )

    @field_validator("model", "record", mode="before")
    @classmethod
    def _refuse_empty_path(cls, value: object) -> object:
        if value == "":
            raise ValueError("an empty path would mean the current folder; leave it out for the default")
        return value

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        self.mechanisms  # noqa: B018 - it is checked when it is made
        return self

    @property
    def mechanisms(self) -> Mechanisms:
        """Of requests that name none."""
        return Mechanisms(
            builder=self.builder,
            num_nodes=self.nodes,
            num_positions=self.positions,
            is_cost_aware=self.cost_aware,
            gdn_form=self.gdn_form,
            q_weights=self.q_weights,
            is_q_gated=self.q_gate,
            has_certified_head=self.certified_head,
        )

    @property
    def batch(self) -> BatchMechanisms:
        return BatchMechanisms(
            node_budget=self.node_budget,
            has_drafter_blocks=self.drafter_blocks,
            whole_prompt_rows=self.whole_prompt_rows,
            prompt_rows=self.prompt_rows,
        )


def load_settings(arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from command-line flags, then variables, then defaults. Raises ConfigError."""
    return read_settings(Settings, arguments, environ)


def read_settings(
    kind: type[SettingsT], arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> SettingsT:
    """Settings of one process.

    Raises
    ------
    ConfigError
        For an unknown flag or ``SPECPILOT_*`` variable and for every wrong value, with its name.
    """
    _refuse_unknown_variables(kind, environ)
    try:
        return kind(_cli_parse_args=list(arguments), _cli_exit_on_error=False)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: got {e['input']!r}, {e['msg']}" if e["loc"] else e["msg"]
            for e in error.errors()
        )
        raise ConfigError(f"settings: {problems}") from None
    except SettingsError as error:
        raise ConfigError(f"settings: {error}") from None


def _refuse_unknown_variables(kind: type[BaseSettings], environ: Mapping[str, str]) -> None:
    known = {ENV_PREFIX + name.upper() for name in kind.model_fields}
    for name in sorted(environ):
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known:
            close = difflib.get_close_matches(name.upper(), sorted(known), n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"
            raise ConfigError(f"environment: got unknown variable {name}, expected a known one; {hint}")
