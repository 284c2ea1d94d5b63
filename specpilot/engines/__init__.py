"""Engines behind one contract (``base.Engine``)."""
