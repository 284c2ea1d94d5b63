"""The playground's key field: what cannot be a key is told, not sent."""

from __future__ import annotations

import pytest

from specpilot_console.client import ApiError, Session
from specpilot_console.tabs.playground import _answer_stock, _view_code
from tests.service.sidecar.harness import LiveSidecar


@pytest.mark.parametrize("key", ["ключ", "sp_a b", "sp_a\nb"])
def test_what_is_no_key_is_told(admin: Session, key: str) -> None:
    said, *_, stock = _answer_stock(admin, "hello", 4, 0.0, 0, key)
    assert "wrong key" in said and "letters, digits and underscores" in said and stock is None
    with pytest.raises(ApiError, match="no key"):
        _view_code(admin, "hello", 4, 0.0, 0, key)


def test_an_empty_field_means_the_key_of_the_login(admin: Session, sidecar: LiveSidecar) -> None:
    *_, stock = _answer_stock(admin, "hello", 4, 0.0, 0, " ")
    assert stock["text"].startswith("word 0")
