"""Downloads into a cache, with progress. A file is kept only if it has the expected checksum."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import DataError, MissingDependencyError
from tacit.core.events import Downloading, OnEvent, ignore


@dataclass(frozen=True)
class Remote:
    """A file to fetch: its address and checksum, such as `md5:...` or `sha256:...`."""

    url: str
    checksum: str

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def cache_folder() -> Path:
    """Where downloads are kept: TACIT_CACHE, or the user's cache folder."""
    chosen = os.environ.get("TACIT_CACHE")
    if chosen:
        return Path(chosen)
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache) / "tacit"


def fetch(remote: Remote, folder: Path, on_event: OnEvent = ignore) -> Path:
    """The file's path in `folder`; the file is downloaded if it is not there.

    A broken download leaves nothing behind.
    """
    try:
        import pooch
    except ImportError:
        raise MissingDependencyError(
            f"downloading {remote.file} needs pooch; run: pip install pooch"
        ) from None
    pooch.get_logger().setLevel(logging.ERROR)
    bar = _DownloadBar(remote.file, on_event)
    try:
        path = pooch.retrieve(
            remote.url,
            known_hash=remote.checksum,
            fname=remote.file,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=bar, timeout=30),
        )
    except ValueError as error:
        if "hash" not in str(error).lower():
            raise DataError(f"cannot download {remote.url}: {error}") from None
        raise DataError(
            f"{remote.url} has the wrong checksum (expected {remote.checksum}); nothing was kept"
        ) from None
    except OSError as error:  # requests' errors are OSErrors too
        raise DataError(
            f"cannot download {remote.url} ({type(error).__name__}); put the file into a folder,"
            " and name that folder as data or in the environment variable TACIT_DATA",
            parameters=("data",),
        ) from None
    return Path(path)


class _DownloadBar:
    """A progress bar as pooch wants it, which passes on what it hears as events."""

    def __init__(self, file: str, on_event: OnEvent) -> None:
        self.file = file
        self.on_event = on_event
        self.done = 0
        self.total = 0

    def update(self, count: int) -> None:
        self.done += count
        self.on_event(Downloading(self.file, self.done, self.total))

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...
