"""Downloads into a cache: checked against a checksum, with progress, and whole or not at all."""

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
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit"
    return Path(os.environ.get("TACIT_CACHE") or default)


def fetch(remote: Remote, folder: Path, on_event: OnEvent = ignore) -> Path:
    """The file's path in `folder`, downloaded if it is not there. A broken download leaves nothing behind."""
    try:
        import pooch
    except ImportError:
        raise MissingDependencyError(
            f"downloading {remote.file} needs pooch; run: pip install pooch"
        ) from None
    pooch.get_logger().setLevel(logging.ERROR)
    try:
        found = pooch.retrieve(
            remote.url,
            known_hash=remote.checksum,
            fname=remote.file,
            path=folder,
            downloader=pooch.HTTPDownloader(
                progressbar=_DownloadBar(remote.file, on_event), timeout=30
            ),
        )
    except ValueError as error:
        if "hash" not in str(error).lower():
            raise DataError(f"cannot download {remote.url}: {error}") from None
        raise DataError(
            f"{remote.url} has the wrong checksum (expected {remote.checksum}); nothing was kept"
        ) from None
    except OSError as error:  # requests' errors are OSErrors too
        raise DataError(
            f"cannot download {remote.url} ({type(error).__name__}); put the file into a folder and name it with"
            " --data or TACIT_DATA"
        ) from None
    return Path(found)


class _DownloadBar:
    """What pooch wants of a progress bar; it tells the listener."""

    def __init__(self, file: str, on_event: OnEvent) -> None:
        self.file, self.on_event, self.done, self.total = file, on_event, 0, 0

    def update(self, count: int) -> None:
        self.done += count
        self.on_event(Downloading(self.file, self.done, self.total))

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...
