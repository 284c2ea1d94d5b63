"""The operator's web console and ``specpilot admin``: both speak to a sidecar over HTTP through one client."""
