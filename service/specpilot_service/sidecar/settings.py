"""Every setting of the sidecar, from command-line flags or ``SPECPILOT_*`` variables; read nowhere else."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specpilot_service.settings import ENV_PREFIX, read_settings

__all__ = ["SidecarSettings", "is_loopback", "load_sidecar_settings"]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class SidecarSettings(BaseSettings):
    """Gateway, admin API and engine of one box. Every flag is also a variable: --admin-port is SPECPILOT_ADMIN_PORT."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_prog_name="specpilot sidecar",
    )

    state: Path = Field(
        default=Path("~/.local/state/specpilot"),
        description="folder of the state; one sidecar at a time",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="address of the gateway")
    port: int = Field(default=8000, ge=0, le=65535, description="port of the gateway; 0 takes a free one")
    admin_host: str = Field(default="127.0.0.1", min_length=1, description="address of the admin API")
    admin_port: int = Field(default=8001, ge=0, le=65535, description="port of the admin API; 0: a free one")
    open: bool = Field(default=False, description="gateway without keys; only on a loopback address")
    open_metrics: bool = Field(default=False, description="/metrics without a key")
    profile: str | None = Field(
        default=None,
        min_length=1,
        description="profile of the first start; later the current revision counts",
    )
    models: Path = Field(
        default=Path("/models"), description="folder with the folders of targets and drafters"
    )
    gpu: str | None = Field(
        default=None, min_length=1, description="GPU to resolve profiles for; default: what is found"
    )
    engine_url: str | None = Field(
        default=None,
        pattern=r"^http://[^/]+/?$",
        description="engine that somebody else runs, as an http URL of host and port; nothing is started then",
    )
    max_in_flight: int = Field(default=64, ge=1, le=10_000, description="open requests of one engine")
    max_queued: int = Field(default=256, ge=0, le=100_000, description="requests that wait; more get 429")
    hold_timeout_s: float = Field(
        default=300.0, gt=0, description="longest wait for a place, switches and restarts included"
    )
    keep_alive_s: float = Field(
        default=10.0, ge=0.05, description="a stream silent for so long gets a comment"
    )
    engine_timeout_s: float = Field(
        default=600.0, gt=0, description="an engine that sends nothing for so long has failed on the request"
    )
    stall_timeout_s: float = Field(
        default=60.0, gt=0, description="a client that takes no bytes for so long is cut off"
    )
    drain_delay_s: float = Field(
        default=0.0,
        ge=0,
        description="on SIGTERM, how long new requests are still taken while /readyz says 503",
    )
    drain_timeout_s: float = Field(
        default=30.0, ge=0, le=86_400, description="how long streams may finish at the end and in switches"
    )
    max_body_bytes: int = Field(
        default=2 * 2**20, ge=1024, description="largest request body; larger ones are answered 413"
    )
    engine_log_bytes: int = Field(
        default=16 * 2**20,
        ge=4096,
        description="size of a file of an engine's log; two are kept of each process",
    )
    breaker_failures: int = Field(default=5, ge=1, description="failures in a row that open the breaker")
    breaker_cooldown_s: float = Field(default=5.0, gt=0, description="how long an open breaker waits")
    max_restarts: int = Field(
        default=5,
        ge=0,
        description="restarts in a row of an engine that does not become ready; then it has failed",
    )
    startup_budget_s: float | None = Field(
        default=None,
        gt=0,
        le=86_400,
        description="longest time from an engine's start to its first token; default: what the profile says, and with "
        "--engine-url no limit",
    )
    backoff_s: float = Field(
        default=1.0, gt=0, description="wait before the first restart; doubles up to 60 s"
    )
    otlp_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]+/.*$",
        description="where traces go, OTLP over HTTP: http://127.0.0.1:4318/v1/traces; needs the extra otel",
    )
    gates: tuple[str, ...] = Field(
        default=("audit", "ceiling"),
        description="checks that a switch must pass, in their order; '[]' for none",
    )
    job_schedule: dict[str, Annotated[float, Field(ge=60)]] = Field(
        default={},
        description="kinds of checks that run again and again, with their seconds: --job-schedule audit=86400",
    )
    job_timeout_s: float = Field(
        default=3600.0, gt=0, description="longest time a check may run, pauses for requests not counted"
    )
    job_deadline_s: float = Field(
        default=6 * 3600.0,
        gt=0,
        description="longest time from a check's start to its end, pauses counted: a box that is always full has no "
        "time for it",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severe log shown"
    )
    log_format: Literal["json", "text"] = Field(default="json", description="form of the log on stderr")

    @field_validator("state")
    @classmethod
    def _at_home(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @model_validator(mode="after")
    def _is_open_only_on_loopback(self) -> SidecarSettings:
        if self.open and not is_loopback(self.host):
            raise ValueError(f"open: got host {self.host!r}, expected a loopback address; use keys elsewhere")
        if self.engine_url is not None and self.profile is not None:
            raise ValueError("engine_url and profile: got both; an engine found by URL has its own options")
        return self


def load_sidecar_settings(
    arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> SidecarSettings:
    """Settings from command-line flags, then variables, then defaults. Raises ConfigError."""
    return read_settings(SidecarSettings, arguments, environ)
