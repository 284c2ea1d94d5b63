"""The sidecar over HTTP: admin API and gateway. It keeps no key and nothing of a user."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from specpilot_service.schemas.admin import ProfileList
from specpilot_service.schemas.admin_access import WhoAmI
from specpilot_service.schemas.admin_routes import ADMIN_PREFIX, AdminRoute, find_route

__all__ = ["NO_KEY", "ApiError", "ConsoleClient", "Session", "is_key"]

NO_KEY = "This is no key: keys begin with sp_ and hold letters, digits and underscores."

ModelT = TypeVar("ModelT", bound=BaseModel)


def is_key(text: str) -> bool:
    """Whether it can be a key at all; anything else could not even be sent."""
    return text.isascii() and text.replace("_", "").replace("-", "").isalnum()


class ApiError(Exception):
    """The sidecar refused, or could not be reached.

    Attributes
    ----------
    status, code
        HTTP status and the stable word of the error body. 0 and ``unreachable`` when there was no answer, ``not_json``
        when the answer was none of the sidecar's.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    @property
    def is_unavailable(self) -> bool:
        """The sidecar has the route, but this build has not the part behind it."""
        return self.code == "unavailable"

    @classmethod
    def of(cls, response: httpx.Response) -> ApiError:
        """Of an answer that is no success; its body must have been read."""
        try:
            error = response.json()["error"]
            return cls(response.status_code, str(error["code"] or error["type"]), str(error["message"]))
        except (ValueError, KeyError, TypeError):
            message = (
                f"HTTP {response.status_code} from {response.url.copy_with(query=None)}, and no error body"
            )
            return cls(response.status_code, "not_json", message)


class ConsoleClient:
    """Connections to one sidecar. Thread safe; who asks is said by each :class:`Session`.

    Parameters
    ----------
    admin_url, gateway_url
        Scheme, host and port of the two listeners.
    timeout_s
        Longest silence of the sidecar before a call fails.
    """

    def __init__(self, admin_url: str, gateway_url: str, timeout_s: float = 60.0) -> None:
        self.admin_url, self.gateway_url = admin_url.rstrip("/"), gateway_url.rstrip("/")
        # Proxy variables of the machine are for the way outside; the sidecar is inside.
        self.http = httpx.Client(timeout=timeout_s, trust_env=False)

    def session(self, key: str) -> Session:
        return Session(self, key)

    def close(self) -> None:
        self.http.close()


class Session:
    """Calls with one key."""

    def __init__(self, client: ConsoleClient, key: str) -> None:
        self.client, self.key = client, key

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def whoami(self) -> WhoAmI:
        return self.fetch(WhoAmI, "whoami")

    def fetch(
        self,
        kind: type[ModelT],
        name: str,
        *,
        body: BaseModel | None = None,
        query: Mapping[str, Any] | None = None,
        **path: str | int,
    ) -> ModelT:
        """The answer of the route ``name`` as its model ``kind``. Raises ApiError."""
        answer = self.call(name, body=body, query=query, **path)
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            message = f"{name}: the answer is no {kind.__name__}: {error.error_count()} fields differ; versions apart?"
            raise ApiError(200, "wrong_answer", message) from None

    def call(
        self,
        name: str,
        *,
        body: BaseModel | None = None,
        query: Mapping[str, Any] | None = None,
        **path: str | int,
    ) -> Any:
        """The JSON of the route's answer, or its text where it is no JSON. Raises ApiError."""
        route = find_route(name)
        response = self._send(
            route.method,
            self._url(route, path),
            params={key: value for key, value in (query or {}).items() if value is not None},
            json=None if body is None else body.model_dump(mode="json"),
        )
        if route.text is not None:
            return response.text
        try:
            return response.json()
        except json.JSONDecodeError:
            raise ApiError(response.status_code, "not_json", f"{name}: the answer is no JSON") from None

    def events(self) -> Iterator[dict[str, Any]]:
        """Live events, each a SidecarEvent, until the sidecar ends. Raises ApiError."""
        route = find_route("events")
        try:
            with self.client.http.stream("GET", self._url(route, {}), headers=self.headers) as response:
                if response.status_code != 200:
                    response.read()
                    raise ApiError.of(response)
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _send(self, method: str, url: str, **content: Any) -> httpx.Response:
        try:
            response = self.client.http.request(method, url, headers=self.headers, **content)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if not response.is_success:
            raise ApiError.of(response)
        return response

    def _unreachable(self, error: Exception) -> ApiError:
        what = str(error) or type(error).__name__
        return ApiError(0, "unreachable", f"sidecar {self.client.admin_url}: {what}; is it running?")

    def _url(self, route: AdminRoute, path: Mapping[str, str | int]) -> str:
        words = {name: quote(str(value), safe="") for name, value in path.items()}
        if "profile" in path and "/" in str(path["profile"]):
            words["profile"] = self._profile_id(str(path["profile"]))
        return self.client.admin_url + ADMIN_PREFIX + route.path.format(**words)

    def _profile_id(self, name: str) -> str:
        """A name holds a slash, which no path segment can; the id says the same."""
        for profile in self.fetch(ProfileList, "profiles.list").profiles:
            if profile.name == name:
                return profile.profile_id
        raise ApiError(404, "not_found", f"profile: got {name!r}, expected a known name or id")
