"""Version 1: all tables of the first sidecar."""

__all__ = ["SQL"]

SQL = """
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    secret_sha256 BLOB NOT NULL,
    scopes TEXT NOT NULL,
    models TEXT,
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    created_at TEXT NOT NULL,
    created_by TEXT NOT NULL,
    revoked_at TEXT,
    last_used_at TEXT
) STRICT;

CREATE TABLE revisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    state TEXT NOT NULL CHECK (state IN ('pending', 'current', 'superseded', 'rejected', 'imported')),
    profile_id TEXT NOT NULL,
    profile_name TEXT NOT NULL,
    resolved TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at TEXT NOT NULL,
    applied_at TEXT,
    switch_id TEXT,
    gates TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE UNIQUE INDEX one_current_revision ON revisions (state) WHERE state = 'current';

CREATE TABLE switches (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    is_open INTEGER NOT NULL DEFAULT 1,
    mode TEXT NOT NULL,
    from_revision INTEGER REFERENCES revisions (number),
    to_revision INTEGER NOT NULL REFERENCES revisions (number),
    canary_share REAL,
    is_promoted_at_once INTEGER NOT NULL,
    gates TEXT NOT NULL DEFAULT '[]',
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    error TEXT,
    created_at TEXT NOT NULL,
    ended_at TEXT
) STRICT;
CREATE UNIQUE INDEX one_open_switch ON switches (is_open) WHERE is_open = 1;

CREATE TABLE switch_steps (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    switch_id TEXT NOT NULL REFERENCES switches (id),
    state TEXT NOT NULL,
    at TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE usage (
    key_id TEXT NOT NULL,
    hour TEXT NOT NULL,
    model TEXT NOT NULL,
    num_requests INTEGER NOT NULL DEFAULT 0,
    num_refused INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_tokens INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (key_id, hour, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE crashes (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    revision INTEGER,
    exit_code INTEGER,
    signal TEXT,
    at TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE audit_log (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    previous_hash TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log
    BEGIN SELECT RAISE(ABORT, 'the audit log is append only'); END;
CREATE TRIGGER audit_log_is_not_cut BEFORE DELETE ON audit_log
    BEGIN SELECT RAISE(ABORT, 'the audit log is append only'); END;
"""
