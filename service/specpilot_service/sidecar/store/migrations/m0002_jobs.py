"""Version 2: jobs."""

__all__ = ["SQL"]

SQL = """
CREATE TABLE jobs (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('operator', 'schedule', 'gate')),
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    revision INTEGER REFERENCES revisions (number),
    options TEXT NOT NULL,
    progress TEXT,
    result TEXT,
    error TEXT,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at TEXT
) STRICT;
CREATE UNIQUE INDEX one_running_job ON jobs (state) WHERE state = 'running';
"""
