"""The ledger: a chain that shows every change, and survives a process that is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from specpilot.cli import main
from specpilot.controller.ledger import Ledger, LedgerError, read_export

WRITER = """
import sys
from pathlib import Path
from specpilot.controller.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
for number in range(10 ** 6):
    entry = ledger.append("test", "entry", number=number, filling="x" * 2000)
    print(entry.seq, entry.hash, flush=True)
"""


def test_entries_come_back_and_are_chained(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    made = [ledger.append("user 1", "kind", value=number) for number in range(3)]
    ledger.close()
    again = Ledger(tmp_path / "ledger")
    assert again.entries() == made
    assert made[2].previous_hash == made[1].hash
    assert again.verify((2, made[1].hash)).is_intact
    again.export(tmp_path / "export")
    assert read_export(tmp_path / "export") == made


def test_sql_can_neither_change_nor_remove(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger").append("user 1", "kind")
    for statement in ("UPDATE entries SET kind = 'x'", "DELETE FROM entries"):
        with (
            sqlite3.connect(tmp_path / "ledger") as connection,
            pytest.raises(sqlite3.DatabaseError, match="append"),
        ):
            connection.execute(statement)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be taken for one" * 50)
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "text")
    with sqlite3.connect(tmp_path / "later") as connection:
        connection.execute("PRAGMA user_version=9")
    with pytest.raises(LedgerError, match="version 9"):
        Ledger(tmp_path / "later")
    (tmp_path / "export").write_text("{}\n")
    with pytest.raises(LedgerError):
        read_export(tmp_path / "export")


@pytest.mark.parametrize("num_seen", [1, 40])
def test_a_killed_writer_loses_nothing_it_confirmed(tmp_path: Path, num_seen: int) -> None:
    path = tmp_path / "ledger"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    confirmed = [process.stdout.readline().split() for _ in range(num_seen)]
    os.kill(process.pid, signal.SIGKILL)
    confirmed += [line.split() for line in process.stdout.read().splitlines() if len(line.split()) == 2]
    process.wait()
    ledger = Ledger(path)
    seq, digest = confirmed[-1]
    assert ledger.verify((int(seq), digest)).is_intact
    assert len(ledger.entries()) >= int(seq)
    assert ledger.append("test", "after").seq == len(ledger.entries())


def test_the_command_sees_a_ledger_that_was_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger(tmp_path / "ledger")
    entries = [ledger.append("user 1", "kind") for _ in range(3)]
    ledger.close()
    path, receipt = str(tmp_path / "ledger"), f"{entries[2].seq}:{entries[2].hash}"
    export = str(tmp_path / "export")
    assert main(["controller", "verify", path, "--receipt", receipt, "--write-export", export, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["head_hash"] == entries[2].hash
    assert main(["controller", "verify", export]) == 0
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TRIGGER no_delete; DELETE FROM entries WHERE seq = 3;")
    assert main(["controller", "verify", path]) == 0
    assert main(["controller", "verify", path, "--receipt", receipt]) == 1
    assert main(["controller", "verify", str(tmp_path / "absent")]) == 2


@pytest.mark.parametrize(
    "script", ["CREATE TABLE t (a)", "CREATE TABLE entries (a)", "PRAGMA user_version=1"]
)
def test_a_foreign_database_is_refused_and_not_changed(tmp_path: Path, script: str) -> None:
    path = tmp_path / "f.db"
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    content = path.read_bytes()
    assert main(["controller", "verify", str(path)]) == 2
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path)
    assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def test_verifying_makes_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.append("user 1", "kind")
    # Its entry lies in the log beside it while it is open.
    assert main(["controller", "verify", str(path)]) == 0
    ledger.close()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert main(["controller", "verify", str(path)]) == 0
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_wrong_calls_are_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger(tmp_path / "ledger").close()
    for option, value in (("--receipt", "²:abc"), ("--receipt", "1:abc"), ("--write-export", "/nosuch/x")):
        assert main(["controller", "verify", str(tmp_path / "ledger"), option, value]) == 2
        assert "internal error" not in capsys.readouterr().err
