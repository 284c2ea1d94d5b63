"""State that outlives the process: keys, revisions, switches, jobs, usage, and the audit log of every change."""

from specpilot_service.sidecar.store.audit_log import AuditLog
from specpilot_service.sidecar.store.crashes import Crashes
from specpilot_service.sidecar.store.database import Database
from specpilot_service.sidecar.store.jobs import Jobs
from specpilot_service.sidecar.store.keys import Keys
from specpilot_service.sidecar.store.revisions import Revisions
from specpilot_service.sidecar.store.state import StateStore
from specpilot_service.sidecar.store.switches import Switches
from specpilot_service.sidecar.store.usage import Usage

__all__ = ["AuditLog", "Crashes", "Database", "Jobs", "Keys", "Revisions", "StateStore", "Switches", "Usage"]
