"""One file over HTTPS into a partial file, taken up again where an earlier attempt stopped."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

_ATTEMPTS = 3
_BLOCK = 1 << 16
_TIMEOUT_S = 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Report = Callable[[int, int | None], None]
"""Called with the bytes present so far and, where the server told it, the bytes there will be."""


class DownloadError(Exception):
    """Why one source did not deliver; the caller goes on to the next."""


class _InterruptedError(Exception):
    """The transfer stopped half-way; what arrived is kept, and another attempt may resume."""


def download(url: str, part: Path, *, limit: int, report: Report) -> None:
    """Brings ``url`` into the file ``part``, resuming it where it exists.

    Args:
        url: an HTTPS address (plain HTTP is allowed to this very machine only).
        part: the partial file. After an interruption it holds what arrived, for the next call to resume.
        limit: the most bytes the file can have; a server that sends more is cut off.
        report: told of the progress after every block.

    Raises:
        DownloadError: where the server refuses, cannot be reached, or breaks off three times.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _transfer(url, part, limit, report)
        except _InterruptedError as interruption:
            if attempt == _ATTEMPTS:
                raise DownloadError(f"broke off {_ATTEMPTS} times ({interruption})") from interruption
        else:
            return


def _transfer(url: str, part: Path, limit: int, report: Report) -> None:
    _require_https(url)
    have = part.stat().st_size if part.exists() else 0
    try:
        response = urllib.request.urlopen(_request(url, have), timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            part.unlink()
            raise _InterruptedError("the partial file did not fit") from error
        raise DownloadError(f"HTTP {error.code}") from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        raise DownloadError(str(getattr(error, "reason", error)) or type(error).__name__) from error
    with response:
        _require_https(response.geturl())
        resumed = have > 0 and (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-")
        _receive(response, part, have if resumed else 0, limit, report)


def _request(url: str, have: int) -> urllib.request.Request:
    headers = {"User-Agent": "tacit", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    return urllib.request.Request(url, headers=headers)


def _require_https(url: str) -> None:
    address = urllib.parse.urlsplit(url)
    if address.scheme != "https" and address.hostname not in _LOOPBACK:
        raise DownloadError(f"{url} is not an HTTPS address")


def _receive(response: http.client.HTTPResponse, part: Path, have: int, limit: int, report: Report) -> None:
    """Appends to the ``have`` bytes that are kept, and holds the server to the length it announced."""
    announced = response.headers.get("Content-Length")
    total = have + int(announced) if announced is not None and announced.isdigit() else None
    with part.open("ab" if have else "wb") as target:
        report(have, total)
        try:
            while block := response.read(_BLOCK):
                have += len(block)
                if have > limit:
                    raise DownloadError(f"sends more than the {limit} bytes the file can have")
                target.write(block)
                report(have, total)
        except (OSError, http.client.HTTPException) as error:
            raise _InterruptedError(str(error) or type(error).__name__) from error
    if total is not None and have < total:
        raise _InterruptedError(f"{have} of {total} bytes arrived")
