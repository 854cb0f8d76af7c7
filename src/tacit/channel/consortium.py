"""The consortium file: who takes part, where they listen, and which certificates they show."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tacit.channel.party_names import check_consortium_name, check_party_name
from tacit.core.errors import DataError, shown, suggest
from tacit.core.files import replacing
from tacit.core.yaml_text import parse, reason

FILE = "consortium.yaml"
PLACES = (Path(FILE), Path("consortium", FILE))  # where it is looked for
HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?")
HEADER = "# A consortium's parties: where they listen and what they show. tacit cert issue writes it anew, comments lost.\n"


@dataclass(frozen=True)
class Address:
    """Where a party listens; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in `host:port`, an IPv6 host in brackets.

        >>> Address.parse("[::1]:7050")
        Address(host='::1', port=7050)
        """
        host, colon, port = text.rpartition(":")
        if "://" in text:
            raise DataError(f"{shown(text)}: expected host:port without {text.split('://')[0]}://")
        if not colon or not host:
            raise DataError(f"{shown(text)}: expected host:port, such as 'alice.example:7050'")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise DataError(
                f"{shown(text)}: expected a port from 1 to 65535 (0 for any free one), got {shown(port)}"
            )
        return cls(_host(host, text), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _host(host: str, text: str) -> str:
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else None
    try:
        six = str(ipaddress.IPv6Address(host if bare is None else bare))
    except ValueError:
        if bare is not None or not HOST.fullmatch(host):
            raise DataError(
                f"{shown(text)}: {shown(host)} is no host; expected a name or an IP address"
            ) from None
        return host
    if bare is None:
        raise DataError(f"{shown(text)}: write an IPv6 address in brackets, such as '[::1]:7050'")
    return six


@dataclass(frozen=True)
class Member:
    """A party; without an address it only dials out."""

    name: str
    address: Address | None
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Consortium:
    """Parties that trust the certificates of one authority."""

    name: str
    ca: Path
    members: dict[str, Member]

    @classmethod
    def find(cls, path: Path | None = None) -> Consortium:
        """The consortium in this file or folder or, without one, in `consortium.yaml` here or in `consortium/`."""
        if path is not None:
            return cls.read(path / FILE if path.is_dir() else path)
        found = next((place for place in PLACES if place.exists()), None)
        if found is None:
            where = " nor ".join(map(str, PLACES))
            raise DataError(
                f"there is neither {where}; tacit cert init makes one, or ask whoever keeps the consortium's"
            )
        return cls.read(found)

    @classmethod
    def read(cls, path: Path) -> Consortium:
        """The consortium in a file; its paths are relative to that file."""
        settings = _settings(path)
        _check_keys(settings, ("consortium", "ca", "parties"), str(path))
        name = _text(settings, "consortium", None, str(path))
        parties = settings.get("parties")
        if not isinstance(parties, dict | None):
            raise DataError(
                f"{path}: parties: expected a line per party, such as 'alice: {{}}', got {shown(parties)}"
            )
        try:
            members = [_member(one, value, path) for one, value in (parties or {}).items()]
            check_consortium_name(name)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        ca = path.parent / Path(_text(settings, "ca", "ca.pem", str(path))).expanduser()
        return cls(name, ca, {member.name: member for member in members})

    def member(self, party: str) -> Member:
        """The party of this name."""
        if party not in self.members:
            known = suggest(party, self.members) if self.members else "it has none yet"
            raise DataError(f"no party of {self.name} is called {party!r}; {known}")
        return self.members[party]

    def with_member(self, member: Member) -> Consortium:
        """The same with this party, in the place of one of its name or at the end."""
        return replace(self, members={**self.members, member.name: member})

    def text(self, folder: Path) -> str:
        """The file, as it lies in this folder."""
        parties = {member.name: _entry(member, folder) for member in self.members.values()}
        settings = {"consortium": self.name, "ca": _relative(self.ca, folder), "parties": parties}
        # A party's entry is one line, as in `alice: {address: 'alice.example:7050'}`.
        body: str = yaml.safe_dump(
            settings,
            default_flow_style=None,
            sort_keys=False,
            allow_unicode=True,
            width=float("inf"),
        )
        return HEADER + body

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all; parties keep their order."""
        with replacing(path) as file:
            file.write(self.text(path.parent))


def default_member(name: str, folder: Path, address: Address | None = None) -> Member:
    """A party whose certificate and key lie in the folder under its name.

    >>> default_member("alice", Path("consortium"))
    Member(name='alice', address=None, certificate=...('consortium/alice.pem'), key=...('consortium/alice.key'))
    """
    return Member(name, address, folder / f"{name}.pem", folder / f"{name}.key")


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "; tacit cert init makes one" if isinstance(error, FileNotFoundError) else ""
        raise DataError(f"cannot read the consortium {path}: {error.strerror}{hint}") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise DataError(
            f"cannot read the consortium {path}: it is not text; expected a YAML file"
        ) from None
    except RecursionError:
        raise DataError(f"{path} is nested too deeply for a consortium") from None
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{path} is not valid YAML: {reason(error)}") from None
    if not isinstance(found, dict):
        what = "it is empty" if found is None else f"got {shown(found)}"
        raise DataError(f"{path}: expected settings such as 'consortium: heart-study', {what}")
    return found


def _member(name: Any, value: Any, path: Path) -> Member:
    if not isinstance(name, str):
        raise DataError(
            f"parties: {shown(name)} is no text to YAML; put the party's name in quotes"
        )
    check_party_name(name)
    if not isinstance(value, dict | None):
        raise DataError(
            f'parties: {name}: expected {{address: "host:port"}} or {{}}, got {shown(value)}'
        )
    settings, where = value or {}, f"parties: {name}"
    _check_keys(settings, ("address", "certificate", "key"), where)
    address = _text(settings, "address", "", where)
    try:
        member = default_member(
            name, path.parent, Address.parse(address) if "address" in settings else None
        )
    except DataError as error:
        raise DataError(f"{where}: address: {error}") from None
    own = [key for key in ("certificate", "key") if key in settings]
    files: dict[str, Any] = {
        key: path.parent / Path(_text(settings, key, "", where)).expanduser() for key in own
    }
    return replace(member, **files)


def _text(settings: dict[str, Any], key: str, default: str | None, where: str) -> str:
    found = settings.get(key, default)
    if found is None and key not in settings:
        raise DataError(f"{where}: {key} is missing; add it, such as '{key}: heart-study'")
    if not isinstance(found, str) or (key in settings and not found):
        raise DataError(
            f"{where}: {key}: expected text{' in quotes' if found else ''}, got {shown(found)}"
        )
    return found


def _check_keys(settings: dict[Any, Any], known: Iterable[str], where: str) -> None:
    for key in settings:
        if key not in known:
            raise DataError(
                f"{where}: there is no setting {shown(key)}; {suggest(str(key), known)}"
            )


def _entry(member: Member, folder: Path) -> dict[str, str]:
    usual = default_member(member.name, folder)
    entry = {} if member.address is None else {"address": str(member.address)}
    for key in ("certificate", "key"):
        if getattr(member, key) != getattr(usual, key):
            entry[key] = _relative(getattr(member, key), folder)
    return entry


def _relative(path: Path, folder: Path) -> str:
    """From the folder, unless it is an absolute path to somewhere else."""
    if path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)
