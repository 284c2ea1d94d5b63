"""The benches' CSV files: rows are on disk at once, an interrupted run can go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from result_file import ResultFile

COLUMNS = ("shape", "rows", "ours_us")


def test_a_row_is_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "results" / "a.csv"
    with ResultFile(path, COLUMNS) as results:
        results.add("attn_out", 8, 19.5)
        assert path.read_text() == "shape,rows,ours_us\nattn_out,8,19.5\n"
        with pytest.raises(ValueError, match="2 values for 3 columns"):
            results.add("attn_out", 8)


def test_a_run_goes_on_after_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for torn in ("", "mlp_do", "mlp_down,8,4"):
        path.write_text(f"shape,rows,ours_us\r\nattn_out,8,19.5\n{torn}")
        with ResultFile(path, COLUMNS, append=True) as results:
            assert results.earlier == [{"shape": "attn_out", "rows": "8", "ours_us": "19.5"}]
            results.add("mlp_down", 8, 43.5)
        assert path.read_bytes() == b"shape,rows,ours_us\r\nattn_out,8,19.5\nmlp_down,8,43.5\n"


def test_a_file_that_is_not_there_begins_anew(tmp_path: Path) -> None:
    with ResultFile(tmp_path / "a.csv", COLUMNS, append=True) as results:
        assert results.earlier == []
    assert (tmp_path / "a.csv").read_text() == "shape,rows,ours_us\n"


def test_without_append_earlier_rows_are_gone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("shape,rows,ours_us\nattn_out,8,19.5\n")
    with ResultFile(tmp_path / "a.csv", COLUMNS) as results:
        assert results.earlier == []
    assert (tmp_path / "a.csv").read_text() == "shape,rows,ours_us\n"


@pytest.mark.parametrize("text", ["shape,ours_us\nattn_out,19.5\n", "shape,rows", "\n"])
def test_other_columns_are_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=r"a.csv has the columns"):
        ResultFile(tmp_path / "a.csv", COLUMNS, append=True)
    assert (tmp_path / "a.csv").read_text() == text
