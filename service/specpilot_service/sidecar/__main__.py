"""``python -m specpilot_service.sidecar``: gateway, admin API and the engine of the applied profile.

Exit code 0 after a complete drain, 1 after a cut one, 2 for wrong settings.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Sequence

from specpilot.errors import ConfigError, SpecPilotError
from specpilot_service.sidecar.logs import set_up_logging
from specpilot_service.sidecar.settings import load_sidecar_settings

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    try:
        settings = load_sidecar_settings(arguments)
    except ConfigError as error:
        print(f"specpilot sidecar: {error}", file=sys.stderr)
        return 2
    set_up_logging(settings.log_level, settings.log_format)
    # Imported late: --help and a wrong setting answer without loading the framework.
    from specpilot_service.sidecar.catalogue import LibraryCatalogue
    from specpilot_service.sidecar.server import serve
    from specpilot_service.sidecar.store import StateStore

    # A full collection of what the imports made stops every stream for 17 ms (measured); it is never garbage.
    gc.collect()
    gc.freeze()
    try:
        catalogue = LibraryCatalogue(settings.gpu, settings.models)
        has_finished = asyncio.run(serve(settings, StateStore(settings.state), catalogue))
    except ConfigError as error:
        print(f"specpilot sidecar: {error}", file=sys.stderr)
        return 2
    except SpecPilotError as error:
        print(f"specpilot sidecar: {error}", file=sys.stderr)
        return 1
    logging.shutdown()
    return 0 if has_finished else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
