"""The client against a real sidecar."""

from __future__ import annotations

import pytest

from specpilot_console.client import ApiError, ConsoleClient, Session
from specpilot_console.playground import Question, ask, compare, find_model, python_code
from specpilot_service.schemas.admin import (
    EngineStatus,
    Overview,
    ProfileList,
    ResolvedView,
    RevisionDiff,
    SwitchRequest,
    SwitchView,
)
from specpilot_service.schemas.admin_routes import ADMIN_ROUTES
from tests.service.sidecar.harness import LiveSidecar


def test_answers_come_as_their_models(admin: Session, sidecar: LiveSidecar) -> None:
    overview = admin.fetch(Overview, "overview")
    assert overview.is_ready and overview.revision is not None
    assert overview.revision.profile_name == "fast"
    found = admin.fetch(ProfileList, "profiles.list")
    assert [profile.name for profile in found.profiles] == ["fast", "slow-start", "broken"]
    body = SwitchRequest(profile="slow-start", reason="test")
    view = admin.fetch(SwitchView, "switches.start", body=body)
    assert sidecar.wait_for_switch(view.id)["state"] == "applied"
    lines = admin.fetch(RevisionDiff, "revisions.diff", query={"before": 1, "after": 2}).lines
    assert {line.path: (line.before, line.after) for line in lines}["command.--start-delay-s"] == (
        None,
        "1.5",
    )
    assert "kind: specpilot-revision" in admin.call("revisions.export", number=2)


def test_a_name_with_a_slash_finds_its_profile(admin: Session, sidecar: LiveSidecar) -> None:
    sidecar.sidecar.catalogue.profiles[0].name = "cpu/fast"  # type: ignore[attr-defined]
    assert admin.fetch(ResolvedView, "profiles.resolved", profile="cpu/fast").profile_id == "sha256-fast"
    with pytest.raises(ApiError) as caught:
        admin.call("profiles.show", profile="cpu/none")
    assert caught.value.status == 404


@pytest.mark.parametrize(
    "name",
    [route.name for route in ADMIN_ROUTES if route.response and route.response.__name__ == "Unavailable"],
)
def test_what_the_build_lacks_is_unavailable(admin: Session, name: str) -> None:
    path = {word: "x" for word in ("audit_id", "round_id", "entry_id") if word.split("_")[0] in name}
    path = {"entry_id": "x"} if name == "memory.show" else path if name.endswith((".show", ".stop")) else {}
    with pytest.raises(ApiError) as caught:
        admin.call(name, **path)  # type: ignore[arg-type]
    assert caught.value.is_unavailable and "this build has no" in str(caught.value)


def test_errors_have_their_status_and_code(client: ConsoleClient, sidecar: LiveSidecar) -> None:
    with pytest.raises(ApiError) as caught:
        client.session("sp_x_y").whoami()
    assert (caught.value.status, caught.value.code) == (401, "wrong_key")
    _, headers = sidecar.make_key("viewer")
    viewer = client.session(headers["Authorization"].removeprefix("Bearer "))
    assert viewer.whoami().scopes == ["viewer"]
    with pytest.raises(ApiError) as caught:
        viewer.fetch(SwitchView, "switches.start", body=SwitchRequest(profile="fast", reason="x"))
    assert (caught.value.status, caught.value.code) == (403, "wrong_scope")


def test_no_sidecar_is_said() -> None:
    client = ConsoleClient("http://127.0.0.1:9", "http://127.0.0.1:9")
    with pytest.raises(ApiError, match=r"127\.0\.0\.1:9.*is it running") as caught:
        client.session("x").whoami()
    assert (caught.value.status, caught.value.code) == (0, "unreachable")
    client.close()


def test_an_answer_of_another_version_is_no_crash(admin: Session) -> None:
    with pytest.raises(ApiError, match="is no EngineStatus"):
        admin.fetch(EngineStatus, "whoami")


def test_live_events(admin: Session, sidecar: LiveSidecar) -> None:
    events = admin.events()
    assert next(events)["kind"] == "traffic"


def test_the_playground_asks_stock_and_profile(
    client: ConsoleClient, admin: Session, sidecar: LiveSidecar
) -> None:
    question = Question("hello", max_tokens=3, seed=7)
    stock, profile = compare(client, admin.key, question)
    assert stock.text == profile.text == "word 0word 1word 2"
    assert profile.finish_reason == "length" and profile.tau is None and profile.num_tokens is None
    assert profile.request_id and profile.total_ms >= profile.first_ms > 0
    model = find_model(client, admin.key)
    assert Question("x", is_stock=True).body(model)["speculation"] == {"drafter": "none"}
    assert "speculation" not in Question("x").body(model)
    code = python_code(client, model, Question('it\'s "so"', is_stock=True))
    compile(code, "code", "exec")
    assert admin.key not in code and sidecar.url in code


def test_a_cut_answer_is_an_error(
    client: ConsoleClient, admin: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Question.body
    monkeypatch.setattr(Question, "body", lambda self, model: real(self, model) | {"fake": {"how": "error"}})
    with pytest.raises(ApiError, match="as asked"):
        ask(client, admin.key, "fake", Question("x", max_tokens=8))
