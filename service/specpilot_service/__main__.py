"""``python -m specpilot_service``: build the engine, serve it, drain on SIGTERM.

Exit code 0 after a complete drain, 1 after a failure or a cut one, 2 for wrong settings.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from specpilot.errors import ConfigError, SpecPilotError
from specpilot_service.settings import load_settings

__all__ = ["main"]

log = logging.getLogger("specpilot_service")


def main(arguments: Sequence[str]) -> int:
    try:
        settings = load_settings(arguments)
    except ConfigError as error:
        print(f"specpilot serve: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # Imported late: --help and a wrong setting answer without loading the framework and the models.
    from specpilot.models.build import build_engine
    from specpilot_service.app import create_app
    from specpilot_service.server import make_server

    try:
        engine = build_engine(
            str(settings.model) if settings.model else None,
            mode=settings.mode,
            drafter=settings.drafter,
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
            max_kv_tokens=settings.max_kv_tokens,
            num_threads=settings.num_threads,
            batch=settings.batch,
            has_step_costs=settings.cost_aware,
        )
    except SpecPilotError as error:
        print(f"specpilot serve: {error}", file=sys.stderr)
        return 1
    server = make_server(create_app(settings, engine), settings)
    try:
        server.run()
    except SystemExit:  # the server's way to say that it could not listen; it has logged why
        return 1
    return 0 if server.started and server.has_drained else 1


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: it would wait for a worker thread that does not come back from a hung engine.
    os._exit(_code)
