"""Systems that are wrong on purpose, to measure what token forcing finds. No server reaches this package.

Every fault runs: the reference engine decodes with it; tokens, states and weights really are wrong. :mod:`.catalogue`
lists them, :mod:`.run` collects answers.
"""

from specpilot.forcing.faults.catalogue import FAULTS, Fault, fault_named

__all__ = ["FAULTS", "Fault", "fault_named"]
