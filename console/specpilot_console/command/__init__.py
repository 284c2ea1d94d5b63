"""``specpilot admin``: every action of the console as a command. Verbs come from the table of admin routes."""
