"""CSV files of the benches: every row is on disk as soon as it is measured."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


class ResultFile:
    """Rows of fixed columns, added to a new file or, with *append*, to one that a run left before its end.

    Attributes
    ----------
    earlier : list of dict
        The rows that were there; half a last line is cut off.

    Raises
    ------
    ValueError
        The file has other columns.
    """

    def __init__(self, path: Path, columns: Sequence[str], append: bool = False) -> None:
        self._columns = tuple(columns)
        self.earlier: list[dict[str, str]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not append or not path.exists() or path.stat().st_size == 0
        self._file = open(path, "w+" if is_new else "r+", newline="", encoding="utf-8")  # noqa: SIM115
        if is_new:
            self._write(self._columns)
            return
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(whole.splitlines())
        if tuple(reader.fieldnames or ()) != self._columns:
            self._file.close()
            raise ValueError(f"{path.name} has the columns {reader.fieldnames}, not {list(self._columns)}")
        self.earlier = list(reader)
        self._file.seek(len(whole.encode()))
        self._file.truncate()

    def _write(self, values: Sequence[object]) -> None:
        csv.writer(self._file, lineterminator="\n").writerow(values)
        self._file.flush()

    def add(self, *values: object) -> None:
        """One value a column.

        Raises
        ------
        ValueError
            Too few or too many.
        """
        if len(values) != len(self._columns):
            raise ValueError(f"{len(values)} values for {len(self._columns)} columns")
        self._write(values)

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
