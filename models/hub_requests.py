"""Requests to a model hub, through huggingface_hub (the extra ``hub``), which is imported when it is used.

Its requests, token and retries are used; its texts of errors are not repeated: they run over many lines and may quote what was sent.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ..errors import RoofplanError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TIMEOUT_S = 10.0  # to connect, and for each read
LONGEST_REQUEST_S = 600.0  # a server that sends a byte now and then keeps to the timeout of a read
RETRIES = 2

_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_SPAN = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_CHUNK_BYTES = 2**16


class FetchError(RoofplanError):
    """A download that failed, or that was refused."""


def over_limit(what: str, limit: int) -> FetchError:
    """Make the error of something larger than its cap."""
    return FetchError(what, got=f"more than {limit:,} bytes", wanted=f"at most {limit:,} bytes")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit: the names of its files, and how to read from them."""

    id: str
    revision: str | None
    commit: str
    endpoint: str  # without a password
    names: frozenset[str]
    url: Callable[[str], str]
    headers: dict[str, str]
    timeout_s: float

    def whole(self, name: str, largest: int) -> bytes:
        """Read a file of at most ``largest`` bytes."""
        with self._response(name, {}, 200) as (_, chunks):
            content = _read(chunks, largest)
        if len(content) > largest:
            raise over_limit(name, largest)
        return content

    def part(self, name: str, start: int, count: int) -> tuple[bytes, int]:
        """Read up to ``count`` bytes of a file from ``start`` on, fewer at its end; give them and the size of the file."""
        wanted = f"bytes={start}-{start + count - 1}"
        with self._response(name, {"Range": wanted}, 206) as (sent, chunks):
            span = _SPAN.fullmatch(sent.get("Content-Range", "").strip())
            first, last, size = (int(number) for number in span.groups()) if span else (-1, -1, -1)
            if first != start or last != min(start + count, size) - 1:
                got = sent.get("Content-Range", "") or "no Content-Range"
                raise FetchError(f"range of {name}", got=got, wanted=f"{wanted} and the size of the file")
            content = _read(chunks, last + 1 - first)
        if len(content) != last + 1 - first:
            raise FetchError(f"range of {name}", got=f"{len(content):,} bytes", wanted=f"{last + 1 - first:,} bytes")
        return content, size

    @contextlib.contextmanager
    def _response(
        self, name: str, more: dict[str, str], status: int
    ) -> Iterator[tuple[Mapping[str, str], Iterator[bytes]]]:
        """Open a response of this status; nothing of its body has been read yet, and what is left unread never is."""
        headers = {**self.headers, "Accept-Encoding": "identity", **more}
        with (
            _reported(name, self.id, self.timeout_s),
            _stream(self.url(name), headers, self.timeout_s) as (response, chunks),
        ):
            self._check(response, name, status)
            yield response.headers, chunks

    def _check(self, response: Any, name: str, status: int) -> None:
        if response.status_code == 200 != status:
            wanted = "a server that answers range requests: whole files of weights are not downloaded"
            raise FetchError(name, got="the whole file for a part of it", wanted=wanted)
        if response.status_code != status:
            raise _refusal(response, name, self.id)
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise FetchError(name, got=f"an answer in {encoding}", wanted="the bytes of the file")


def _read(chunks: Iterator[bytes], largest: int) -> bytes:
    """Read at most ``largest`` bytes and a chunk, for at most :data:`LONGEST_REQUEST_S`."""
    content, deadline = bytearray(), time.monotonic() + LONGEST_REQUEST_S
    for chunk in chunks:
        content += chunk
        if len(content) > largest:
            break
        if time.monotonic() > deadline:
            raise FetchError("download", got=f"no end within {LONGEST_REQUEST_S:g} s")
    return bytes(content)


@contextlib.contextmanager
def _stream(url: str, headers: dict[str, str], timeout_s: float) -> Iterator[tuple[Any, Iterator[bytes]]]:
    """Open a response through the library, with its retries, without reading the body."""
    import huggingface_hub.utils

    utils: Any = huggingface_hub.utils  # it exports without saying so, and each release something else
    options: Any = {"headers": headers, "timeout": timeout_s, "max_retries": RETRIES}
    if not hasattr(utils, "http_stream_backoff"):  # before huggingface_hub 1.0: requests
        with utils.http_backoff("GET", url, stream=True, **options) as response:
            yield response, response.iter_content(_CHUNK_BYTES)
        return
    failure: BaseException | None = None
    with utils.http_stream_backoff("GET", url, **options) as response:
        try:
            yield response, response.iter_raw()
        except BaseException as error:  # noqa: BLE001  # the library would take it for a failed request, and ask again
            failure = error
    if failure is not None:
        raise failure


def open_repository(repository: str, revision: str | None, timeout_s: float) -> Repository:
    """Ask the hub which commit a revision stands for, and which files it has."""
    import huggingface_hub.utils
    from huggingface_hub import constants, hf_hub_url

    from .. import __version__

    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    shown = _without_password(endpoint)
    hub_library: Any = huggingface_hub
    who = {"library_name": "roofplan", "library_version": __version__}
    with _reported(repository, repository, timeout_s, revision):
        headers: dict[str, str] = hub_library.utils.build_hf_headers(**who)  # with the token, if there is one
        token = headers.get("authorization", "")
        if not (token.isascii() and token.isprintable()):  # the client's error would quote it
            raise FetchError("HF_TOKEN", got="characters that no token has", wanted="a token of the hub")
        hub = hub_library.HfApi(endpoint=endpoint, **who)
        told = hub.model_info(repository, revision=revision, timeout=timeout_s, expand=["sha", "siblings"])
        commit, names = str(told.sha), frozenset(str(file.rfilename) for file in told.siblings or ())
    if not _COMMIT.fullmatch(commit):
        raise FetchError("commit", got=commit, wanted="a hash", where=shown)

    def url(name: str) -> str:
        return hf_hub_url(repository, name, revision=commit, endpoint=endpoint)

    return Repository(repository, revision, commit, shown, names, url, headers, timeout_s)


def _without_password(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        is_sound = parts.scheme in {"http", "https"} and parts.hostname
    except ValueError:
        is_sound = False
    if not is_sound:
        raise FetchError("HF_ENDPOINT", got="no address", wanted="one such as https://huggingface.co")
    return urlunsplit((parts.scheme, parts.netloc.rsplit("@", 1)[-1], parts.path, "", ""))


@contextlib.contextmanager
def quiet_library() -> Iterator[None]:
    """Keep the library from requests of its own (statistics, registries), for as long as ours take."""
    try:
        from huggingface_hub import constants
    except ImportError as error:
        hint = "pip install 'roofplan[hub]'"
        raise FetchError("fetch", got="no huggingface_hub", wanted="it installed", hint=hint) from error
    before = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = before


@contextlib.contextmanager
def _reported(what: str, repository: str, timeout_s: float, revision: str | None = None) -> Iterator[None]:
    """Turn the errors of the library, and of whichever client it has, into ours."""
    from huggingface_hub.errors import HfHubHTTPError

    # The base of this error is httpx.HTTPError or, since 2.0, httpx2.HTTPError; those of requests are OSErrors, as is "offline".
    client_errors: Any = HfHubHTTPError.__bases__[0]
    try:
        yield
    except RoofplanError:
        raise
    except (client_errors, OSError) as error:
        response = getattr(error, "response", None)
        if response is not None:
            raise _refusal(response, what, repository, revision) from error
        raise _unreachable(error, timeout_s) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FetchError(what, got="an answer that is not a hub's", hint="is HF_ENDPOINT right?") from error


def _unreachable(error: Exception, timeout_s: float) -> FetchError:
    kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
    if "OfflineMode" in kinds:
        return FetchError("hub", got="offline mode", hint="HF_HUB_OFFLINE is set")
    if "Timeout" in kinds:
        return FetchError("hub", got=f"no answer within {timeout_s:g} s", hint="--timeout sets another limit")
    return FetchError("hub", got="no connection, or a broken one", hint="is the network up, and HF_ENDPOINT right?")


def _refusal(response: Any, what: str, repository: str, revision: str | None = None) -> RoofplanError:
    """Say what a status of the hub means (its codes: huggingface_hub/utils/_http.py, hf_raise_for_status)."""
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    if code == "GatedRepo" or status == 403:
        hint = "ask for access on its page, and set HF_TOKEN"
        return FetchError("repository", got=f"a gated one: {repository}", wanted="one that you may read", hint=hint)
    if code == "RevisionNotFound":
        return UnknownNameError("revision", got=revision or what, wanted=f"a branch, tag or commit of {repository}")
    if code == "RepoNotFound" or status == 401 or (status == 404 and what == repository):
        hint = "for a private one: is HF_TOKEN set, and right?"
        return UnknownNameError("repository", got=repository, wanted="one that the hub has", hint=hint)
    if status == 404:
        return UnknownNameError("file", got=what, wanted=f"a file of {repository}")
    if status == 429:
        return FetchError("hub", got="too many requests", hint="wait, or set HF_TOKEN for a higher limit")
    return FetchError(what, got=f"HTTP status {status}", wanted="the file, or a part of it")
