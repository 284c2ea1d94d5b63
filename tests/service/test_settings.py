"""Settings come from flags, then variables, then defaults, and nothing unknown passes."""

from __future__ import annotations

import pytest

from specpilot.errors import ConfigError
from specpilot_service.settings import Settings, load_settings


def test_flags_win_over_variables_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECPILOT_PORT", "9001")
    monkeypatch.setenv("SPECPILOT_MAX_WAITING", "7")
    settings = load_settings(["--port", "9002"])
    assert (settings.port, settings.max_waiting, settings.host) == (9002, 7, "127.0.0.1")


def test_every_setting_has_a_description() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("name", ["SPECPILOT_MAX_WAITNG", "specpilot_prt", "SPECPILOT_"])
def test_unknown_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(ConfigError, match=name):
        load_settings()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--port", "70000"], "port"),
        (["--model", ""], "model"),
        (["--host", ""], "host"),
        (["--drain-timeout-s", "-1"], "drain_timeout_s"),
        (["--stall-timeout-s", "0"], "stall_timeout_s"),
        (["--num-threads", "0"], "num_threads"),
        (["--log-level", "loud"], "log_level"),
        (["--waiting", "3"], "--waiting"),
        (["surplus"], "surplus"),
    ],
)
def test_wrong_value_is_refused_by_name(arguments: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load_settings(arguments)
