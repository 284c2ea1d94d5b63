"""Who may see the console: a key of the admin API, kept in the browser's cookie and nowhere on this side.

So any replica answers any request, and a restart logs nobody out. The admin API judges every call again.
"""

from __future__ import annotations

import asyncio
import json
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from specpilot_console.client import NO_KEY, ApiError, ConsoleClient, is_key

__all__ = ["COOKIE", "Gate", "key_of"]

COOKIE = "specpilot_key"
_MAX_FORM_BYTES = 4096
# The console takes no files and no proxied spaces, so nobody can send any.
_CLOSED = ("/gradio_api/upload", "/gradio_api/proxy", "/gradio_api/component_server")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>SpecPilot</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 92vh; margin: 0;
  background: light-dark(#fafafa, #18181b); color: light-dark(#18181b, #f4f4f5); }}
form {{ width: 340px; padding: 28px; border-radius: 12px; border: 1px solid light-dark(#e4e4e7, #3f3f46);
  background: light-dark(#fff, #27272a); }}
h1 {{ font-size: 20px; margin: 0 0 14px; }} label {{ display: block; margin-bottom: 4px; }}
input {{ width: 100%; box-sizing: border-box; padding: 9px; border-radius: 7px; font: inherit;
  border: 1px solid light-dark(#d4d4d8, #52525b); background: light-dark(#fff, #18181b); color: inherit; }}
button {{ margin-top: 16px; width: 100%; padding: 9px; border: 0; border-radius: 7px; font: inherit; font-weight: 600;
  background: #2563eb; color: #fff; cursor: pointer; }}
p {{ font-size: 13px; color: light-dark(#71717a, #a1a1aa); margin: 12px 0 0; }}
.wrong {{ color: light-dark(#b91c1c, #f87171); }}
</style></head><body><form method="post" action="{root}/session/login"><h1>SpecPilot</h1>
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>{message}
<p>A key of the admin API with the scope viewer, operator or admin. The first one is in the file admin.key of the
sidecar's state folder.</p></form></body></html>"""


def key_of(headers: Headers) -> str | None:
    """The key in the cookie; None without one."""
    jar = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return None
    return jar[COOKIE].value if COOKIE in jar and jar[COOKIE].value else None


class Gate:
    """Plain ASGI in front of everything: the path prefix, login, logout, and nothing else without a key.

    Parameters
    ----------
    root_path
        Path under which the console is published, "" for none. A proxy in front may strip it or leave it.
    """

    def __init__(self, app: ASGIApp, client: ConsoleClient, root_path: str) -> None:
        self._app, self._client, self._root = app, client, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            path = path.removeprefix(self._root) or "/"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        response = await self._answer(scope, receive)
        if response is None:
            await self._app(scope, receive, send)
        else:
            response.headers["Cache-Control"] = "no-store"
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """None: the console itself answers."""
        path, method, headers = scope["path"], scope["method"], Headers(scope=scope)
        key = key_of(headers)
        if path == "/livez":
            return Response("ok", media_type="text/plain")
        if path == "/favicon.ico":
            return Response(status_code=204)
        if path == "/session/login" and method == "POST":
            return await self._log_in(scope, receive, headers)
        if path == "/session/logout" and method == "POST":
            response = RedirectResponse(f"{self._root}/", 303)
            response.delete_cookie(COOKIE, path=self._root or "/", httponly=True, samesite="strict")
            return response
        if path.startswith(_CLOSED):
            return Response("not found", 404, media_type="text/plain")
        if path == "/":
            return self._page() if key is None else await self._refusal(key)
        if key is None:
            body = {
                "error": {"message": "log in first", "type": "authentication_error", "code": "missing_key"}
            }
            return Response(json.dumps(body), 401, media_type="application/json")
        return None

    async def _log_in(self, scope: Scope, receive: Receive, headers: Headers) -> Response:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return Response(status_code=400)
            body += message.get("body", b"")
            if len(body) > _MAX_FORM_BYTES:
                return Response("the form is too large", 413, media_type="text/plain")
            if not message.get("more_body", False):
                break
        key = parse_qs(body.decode(errors="replace")).get("key", [""])[0].strip()
        # A cookie's value cannot hold everything that a form can; no key of the sidecar holds any of it.
        if not is_key(key):
            return self._page(NO_KEY)
        refusal = await self._refusal(key)
        if refusal is not None:
            return refusal
        is_secure = scope["scheme"] == "https" or headers.get("x-forwarded-proto") == "https"
        response = RedirectResponse(f"{self._root}/", 303)
        response.set_cookie(
            COOKIE, key, path=self._root or "/", httponly=True, samesite="strict", secure=is_secure
        )
        return response

    async def _refusal(self, key: str) -> Response | None:
        """The login page with the reason when the admin API does not take the key."""
        try:
            await asyncio.to_thread(self._client.session(key).whoami)
        except ApiError as error:
            return self._page(str(error))
        return None

    def _page(self, wrong: str = "") -> Response:
        message = f'<p class="wrong" role="alert">{escape(wrong)}</p>' if wrong else ""
        return HTMLResponse(_PAGE.format(root=escape(self._root), message=message))
