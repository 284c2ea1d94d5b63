"""The state file: migrated, durable, and its audit log tells when it was changed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from specpilot.errors import ConfigError
from specpilot_service.schemas.admin_access import KeyCreate
from specpilot_service.sidecar.store import Database, StateStore
from specpilot_service.sidecar.store.migrations import MIGRATIONS
from tests.source_tree import REPO

KEY = KeyCreate(name="k", scopes=["viewer"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    store = StateStore(tmp_path / "state")
    yield store
    store.close()


def fill(store: StateStore, num: int) -> None:
    for index in range(num):
        store.keys.add(f"key{index}", b"\0" * 32, KEY, "test")


def test_a_new_file_has_the_last_version(store: StateStore) -> None:
    assert store.database.version == len(MIGRATIONS)
    assert store.database.rows("PRAGMA journal_mode")[0][0] == "wal"


def test_switches_of_a_file_without_tries_had_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specpilot_service.sidecar.store.database.MIGRATIONS", MIGRATIONS[:2])
    old = StateStore(tmp_path)
    old.database.close()
    monkeypatch.undo()
    insert = (
        "INSERT INTO {} VALUES ({})".format  # as a sidecar of version 2 wrote them
    )
    with sqlite3.connect(tmp_path / "state.sqlite3") as connection:
        connection.execute(
            insert("revisions", "1, 'rejected', 'p', 'p', '{}', 'a', 'r', '2026-01-01', NULL, NULL, '[]'")
        )
        connection.execute(
            insert(
                "switches",
                "1, 's1', 'rolled_back', 0, 'surge', NULL, 1, NULL, 1, '[]', 'a', 'r', NULL, '2026-01-01', NULL",
            )
        )
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
    os.close(old._lock_file)
    store = StateStore(tmp_path)
    (switch,) = store.switches.all()
    assert (switch.id, switch.num_tries, store.database.version) == ("s1", 1, len(MIGRATIONS))
    store.close()


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sqlite3"
    Database(path).close()
    broken = (*MIGRATIONS, "CREATE TABLE added (a INTEGER) STRICT; SELECT no_such_function();")
    monkeypatch.setattr("specpilot_service.sidecar.store.database.MIGRATIONS", broken)
    with pytest.raises(ConfigError):
        Database(path)
    monkeypatch.undo()
    again = Database(path)
    assert again.version == len(MIGRATIONS)
    assert again.rows("SELECT * FROM sqlite_master WHERE name = 'added'") == []
    again.close()


def test_a_file_of_a_later_release_and_a_file_of_others_are_refused(tmp_path: Path) -> None:
    later = tmp_path / "later.sqlite3"
    Database(later).close()
    with sqlite3.connect(later) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="99"):
        Database(later)
    other = tmp_path / "other.sqlite3"
    other.write_bytes(b"hello, this is a text and no database" * 100)
    with pytest.raises(ConfigError, match="other"):
        Database(other)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with pytest.raises(ConfigError, match="another sidecar"):
        StateStore(tmp_path)
    store.close()
    StateStore(tmp_path).close()


def test_a_transaction_is_whole_or_nothing(store: StateStore) -> None:
    told: list[str] = []
    store.audit_log.listen(lambda entry: told.append(entry.action))
    with pytest.raises(RuntimeError, match="in between"), store.database.transaction():
        fill(store, 2)
        raise RuntimeError("in between")
    assert store.keys.all() == [] and store.audit_log.after(0) == [] and told == []
    with pytest.raises(AssertionError, match="outside"):
        store.database.execute("DELETE FROM keys")


def test_the_audit_log_cannot_be_changed_through_sql(store: StateStore) -> None:
    fill(store, 3)
    for sql in ("UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log WHERE seq = 2"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"), store.database.transaction():
            store.database.execute(sql)
    assert store.audit_log.verify().is_intact


@pytest.mark.parametrize(
    ("sql", "bad"),
    [
        ("UPDATE audit_log SET actor = 'x' WHERE seq = 3", 3),
        ("UPDATE audit_log SET detail = '{}' WHERE seq = 1", 1),
        ("DELETE FROM audit_log WHERE seq = 2", 3),
        ("UPDATE audit_log SET seq = 99 WHERE seq = 4", 5),
        ("UPDATE audit_log SET at = '2020-01-01T00:00:00+00:00' WHERE seq = 5", 5),
    ],
)
def test_a_change_behind_its_back_is_found(store: StateStore, sql: str, bad: int) -> None:
    fill(store, 5)
    with sqlite3.connect(store.database.path) as connection:
        connection.execute("DROP TRIGGER audit_log_is_not_changed")
        connection.execute("DROP TRIGGER audit_log_is_not_cut")
        connection.execute(sql)
    connection.close()
    report = store.audit_log.verify()
    assert not report.is_intact and report.first_bad_seq == bad


def test_pages_and_actions(store: StateStore) -> None:
    fill(store, 5)
    store.keys.revoke("key1", "test")
    assert [entry.seq for entry in store.audit_log.page(None, 2, None)] == [6, 5]
    assert [entry.seq for entry in store.audit_log.page(5, 2, None)] == [4, 3]
    assert [entry.action for entry in store.audit_log.page(None, 9, "key.revoke")] == ["key.revoke"]
    assert len(store.audit_log.page(None, 9, "key.")) == 6 and store.audit_log.page(None, 9, "switch.") == []


def begin_switch(store: StateStore, switch_id: str, number: int) -> None:
    store.switches.begin(
        switch_id,
        mode="recreate",
        from_revision=None,
        to_revision=number,
        canary_share=None,
        is_promoted_at_once=True,
        actor="test",
        reason="x",
    )


def test_only_one_switch_is_open_and_one_revision_current(store: StateStore) -> None:
    from tests.service.sidecar.harness import fake_profile

    numbers = [store.revisions.add(fake_profile(name), "pending", "test", "x") for name in "ab"]

    begin_switch(store, "s1", numbers[0])
    with pytest.raises(sqlite3.IntegrityError):
        begin_switch(store, "s2", numbers[1])
    store.revisions.make_current(numbers[0], "s1", [])
    store.switches.move("s1", "applied", "x")
    begin_switch(store, "s2", numbers[1])
    store.revisions.make_current(numbers[1], "s2", [])
    assert [row.state for row in store.revisions.all()] == ["current", "superseded"]


def test_a_switch_that_is_tried_again_is_the_first_of_the_list(store: StateStore) -> None:
    from tests.service.sidecar.harness import fake_profile

    number = store.revisions.add(fake_profile("a"), "pending", "test", "x")
    for switch_id in ("s1", "s2"):
        begin_switch(store, switch_id, number)
        store.switches.move(switch_id, "rolled_back", "no token", error=f"no token of {switch_id}")
    assert [switch.id for switch in store.switches.all()] == ["s2", "s1"]
    store.switches.try_again("s1")
    first, second = store.switches.all()
    assert (first.id, first.state, first.num_tries, first.ended_at) == ("s1", "pending", 2, None)
    assert [(step.state, step.message) for step in first.steps] == [
        ("pending", "try 2, after: no token of s1")
    ]
    assert (second.id, second.num_tries, len(second.steps)) == ("s2", 1, 2)
    with pytest.raises(AssertionError):
        store.switches.try_again("s1")  # it is open


def test_usage_adds_up(store: StateStore) -> None:
    for _ in range(3):
        store.usage.add("k", "m", num_requests=1, prompt_tokens=2, completion_tokens=3)
        store.usage.flush()
    (row,) = store.usage.of("k")
    assert (row.num_requests, row.prompt_tokens, row.completion_tokens) == (3, 6, 9)


WRITER = """
import sys
from pathlib import Path
from specpilot_service.schemas.admin_access import KeyCreate
from specpilot_service.sidecar.store import StateStore
store = StateStore(Path(sys.argv[1]))
first = len(store.keys.all())
for index in range(first, first + 100000):
    store.keys.add(f"key{index:06}", bytes(32), KeyCreate(name="k", scopes=["viewer"]), "writer")
    print(index, flush=True)
"""


def test_kill_9_loses_nothing_that_was_told(tmp_path: Path) -> None:
    """A writer is killed in the middle, again and again; what it reported is there, with its audit entry."""
    for num_lines in (1, 7, 20):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPO
        )
        assert process.stdout is not None
        told = -1
        for _ in range(num_lines):
            told = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        told = max([told, *map(int, rest)])
        process.wait()
        store = StateStore(tmp_path)
        ids = [view.id for view, _ in store.keys.all()]
        made = [e.subject for e in store.audit_log.walk() if e.action == "key.create"]
        assert ids == made == [f"key{index:06}" for index in range(len(ids))] and len(ids) > told
        assert store.audit_log.verify().is_intact
        store.close()


def test_threads_share_a_database(store: StateStore) -> None:
    threads = [
        threading.Thread(
            target=lambda n=n: [store.keys.add(f"{n}-{i}", bytes(32), KEY, "t") for i in range(10)]
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.keys.all()) == 40 and store.audit_log.verify().num_entries == 40
