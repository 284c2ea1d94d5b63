"""Migrations of the state file, applied in the order of their numbers; ``PRAGMA user_version`` holds the last one."""

from specpilot_service.sidecar.store.migrations import m0001_first, m0002_jobs, m0003_tries

__all__ = ["MIGRATIONS"]

MIGRATIONS: tuple[str, ...] = (m0001_first.SQL, m0002_jobs.SQL, m0003_tries.SQL)
"""``MIGRATIONS[n]`` leads from version n to n + 1. A migration that has been released is never edited."""
