"""Audits and power as pictures and pages."""
