"""What users keep apart, tried for real: as root, with systems and callers under users of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from specpilot.controller.config import ControllerConfig, SlotConfig, read_config
from specpilot.controller.isolation import Users, copy_code, find_faults, hash_code, make_private
from specpilot.controller.process import start
from specpilot.controller.snapshots import take_tree
from specpilot.errors import ConfigError, RequestError, Unsupported
from specpilot.profiles.records import read_record

PYTHON = Path("/usr/bin/python3")  # one that any user may run
USERS = Users(controller=61_911, candidate=61_912, control=61_913, agents=(61_914,))
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not PYTHON.exists(), reason="needs root and /usr/bin/python3, to be other users"
)

# In a process of its own: it forks, and gives its rights up.
TRIAL = """
import json, os, secrets, sys
import encodings.idna, numpy.random  # now: the folder of this Python may be closed to the user that it becomes
from pathlib import Path
from specpilot.controller.clock import SystemClock
from specpilot.controller.isolation import Users, drop_to, make_private
from specpilot.controller.slots.base import System
from specpilot.controller.slots.process import ProcessSlot
from specpilot.controller.spawner import start_spawner
from specpilot.controller.stats import log_ratios, measure_gain
from specpilot.controller.trial import TrialPlan, run_trial
from specpilot.requests.sets import Prompt

folder, server, python = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
users = Users(**json.loads(sys.argv[4]))
make_private(folder / "private", users.controller)
sealed = folder / "private" / "sealed"
sealed.write_text("secret")
spawner = start_spawner(users)
drop_to(users.controller)
slot = ProcessSlot("slot", spawner, users, [python, server, "{port}"], {}, folder / "trees", 30.0)
prompts = tuple(Prompt(f"{name}/{n}", name, 1, (n + 1,)) for name in "ab" for n in range(2))
plan = TrialPlan(prompts, 12, num_repeats=0)
report = {"user": os.getuid()}
for name, arguments in (("fast", ("1",)), ("liar", ("8", str(sealed)))):
    trial = run_trial([slot], System(name, arguments), System("stock", ("8",)), plan, SystemClock())
    report[name] = measure_gain(*log_ratios(trial.rate_pairs())).ratio
    report[name + " read"] = sum(one.output_ids[-1] for one in trial.answers("candidate"))
    report[name + " faults"] = trial.faults
report["left over"] = [
    entry.name for entry in Path("/proc").iterdir()
    if entry.name.isdigit() and entry.stat().st_uid in (users.candidate, users.control)
    and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
]
print(json.dumps(report))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder other users can reach: pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="specpilot-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_root
def test_systems_run_apart_and_are_timed_from_outside(open_folder: Path) -> None:
    """A fast system is found fast; one that stops its own clocks, tries to read sealed requests and leaves a process
    behind is found as slow as it is, reads nothing and leaves nothing."""
    (open_folder / "trees" / "stock").mkdir(parents=True)
    server = open_folder / "slot_server.py"
    server.write_text(
        (Path(__file__).parent / "slot_server.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    server.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(open_folder), str(server), str(PYTHON), json.dumps(USERS.__dict__)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["user"] == USERS.controller
    assert report["fast"] > 1.5 * report["liar"]
    assert report["liar read"] == 0 and report["left over"] == []
    assert report["fast faults"] == report["liar faults"] == []


@needs_root
def test_the_code_copy_is_private_and_changes_show(open_folder: Path) -> None:
    private = open_folder / "private"
    make_private(private, USERS.controller)
    digest = copy_code(private / "code", USERS.controller)
    target = private / "code" / "specpilot" / "controller" / "promotion.py"
    for user in (USERS.agents[0], USERS.candidate):
        for command in (["/bin/cat", str(target)], ["/bin/cp", "/dev/null", str(target)]):
            done = subprocess.run(command, user=user, group=user, extra_groups=[], capture_output=True)
            assert done.returncode != 0
    assert hash_code(private / "code") == digest
    target.chmod(0o600)
    target.write_text("")
    assert hash_code(private / "code") != digest


@needs_root
def test_a_folder_of_somebody_else_is_refused(open_folder: Path) -> None:
    (open_folder / "taken").mkdir()
    (open_folder / "link").symlink_to("/etc")
    for name in ("taken", "link"):
        with pytest.raises(ConfigError, match="mode 700"):
            make_private(open_folder / name, USERS.controller)


def test_users_must_differ() -> None:
    with pytest.raises(ConfigError, match="different users"):
        Users(1001, 1002, 1002, (1003,))
    with pytest.raises(ConfigError, match="root for none"):
        Users(0, 1002, 1003, (1004,))


def test_without_isolation_the_controller_does_not_start(tmp_path: Path) -> None:
    config = ControllerConfig(version=1, folder=str(tmp_path / "controller"))
    assert find_faults(None)
    with pytest.raises(Unsupported, match="--allow-unprotected"):
        start(config)
    assert not (tmp_path / "controller").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"folder": "relative"}, "absolute"),
        ({"launch": ["serve"]}, "without the other"),
        ({"slots": []}, "expected one or two"),
        ({"more": 1}, "unknown key 'more'"),
        ({"num_null_trials": 3}, "expected at least 4"),
        ({"num_runs": 1}, "num_runs: got 1, expected an even number"),
        ({"batch_sizes": []}, r"batch_sizes: got \[\], expected one or more"),
        ({"batch_sizes": [1, 0]}, "expected one or more numbers from 1 on"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = tmp_path / "controller.json"
    path.write_text(json.dumps({"version": 1, "folder": "/var/lib/controller"} | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        read_config(path)


def test_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    path.write_text(
        json.dumps({"version": 1, "folder": "/c", "slots": [{"name": "gpu 0"}]}), encoding="utf-8"
    )
    config = read_config(path)
    assert config.slots == (SlotConfig("gpu 0"),) and str(config.socket) == "/c-public/socket"


def test_a_configuration_outlives_the_change_of_user(tmp_path: Path) -> None:
    """The controller's own process gets it as JSON."""
    path = tmp_path / "controller.json"
    given = {
        "users": {"controller": 6001, "candidate": 6002, "control": 6003, "agents": [1000]},
        "slots": [{"name": "gpu 0", "environment": {"CUDA_VISIBLE_DEVICES": "0"}}],
        "launch": ["serve", "{port}"],
        "environment": {"PYTHONPATH": "{tree}"},
        "rules": {"min_tokens": 500},
    }
    path.write_text(json.dumps({"version": 1, "folder": "/c"} | given), encoding="utf-8")
    config = read_config(path)
    again = read_record(ControllerConfig, json.loads(json.dumps(config.to_json())), "controller")
    assert again == config and again.slots[0].environment == {"CUDA_VISIBLE_DEVICES": "0"}


@needs_root
def test_a_python_that_only_root_can_reach_is_named(open_folder: Path) -> None:
    """The folder that shuts the controller's user out, not just 'permission denied'."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(PYTHON)
    code = (
        "import sys; sys.executable = sys.argv[1]\n"
        "from specpilot.controller.process import _check_python\n"
        "_check_python(61_911)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(closed / "python")], capture_output=True, text=True
    )
    assert f"{closed} lets only its owner in" in done.stderr, done.stderr


def test_snapshots_hold_files_and_no_links(tmp_path: Path) -> None:
    source, trees = tmp_path / "source", tmp_path / "trees"
    (source / "package").mkdir(parents=True)
    trees.mkdir()
    (source / "package" / "module.py").write_text("x = 1\n")
    digest = take_tree(source, trees)
    assert (trees / digest / "package" / "module.py").read_text() == "x = 1\n"
    assert take_tree(source, trees) == digest
    (source / "package" / "module.py").write_text("x = 2\n")
    assert take_tree(source, trees) != digest
    (source / "stolen").symlink_to("/etc/passwd")
    with pytest.raises(RequestError, match="link"):
        take_tree(source, trees)
    assert len(list(trees.iterdir())) == 2
