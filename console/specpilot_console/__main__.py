"""``python -m specpilot_console``: serve the console until a signal ends it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

from specpilot_console.settings import read_arguments

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    settings = read_arguments(arguments)
    if importlib.util.find_spec("gradio") is None:
        print("specpilot console: gradio is not installed; install specpilot[console]", file=sys.stderr)
        return 2
    # Read by gradio when it is imported: nothing is sent anywhere.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import uvicorn

    from specpilot_console.app import create_app
    from specpilot_console.client import ConsoleClient

    client = ConsoleClient(settings.admin_url, settings.gateway_url)
    app = create_app(client, settings.root_path)
    where = f"http://{settings.host}:{settings.port}{settings.root_path}/"
    print(f"specpilot console: {where}, for the sidecar {settings.admin_url}", file=sys.stderr)
    try:
        uvicorn.run(
            *(app,),
            host=settings.host,
            port=settings.port,
            log_level=settings.log_level,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
