"""The report of the certified head, and that it does not hide a head that is wrong."""

from __future__ import annotations

import pytest

from specpilot.bench.certified_head import head_report
from specpilot.errors import EngineError
from specpilot.models.build import build_engine


def test_report_and_a_bound_that_is_wrong() -> None:
    engine = build_engine(mode="judge", num_threads=1)
    report = head_report(engine, [1, 3], 8, 5)
    assert report["survivors_mean"] >= 1 and report["num_full"] < report["num_hidden_rows"]
    assert all(set(times) == {"certified", "full"} for times in report["us_by_rows"].values())
    engine.copies.certified_head()._residuals[:] = -1e3
    with pytest.raises(EngineError, match="bound"):
        head_report(engine, [1], 8, 5)
