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

from tacit.channel.fingerprints import parse_fingerprint
from tacit.channel.party_names import check_consortium_name, check_party_name
from tacit.core.errors import DataError, shown, suggest
from tacit.core.files import expanded, read_at_most, replacing
from tacit.core.yaml_text import parse, reason

FILE = "consortium.yaml"
LARGEST = 256 << 10  # bytes of the file
USUAL_PATHS = (Path(FILE), Path("consortium", FILE))  # where it is looked for
ZONE = re.compile(r"[\w.-]*")  # of an IPv6 address
HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?")
HEADER = (
    "# A consortium's parties: where they listen and what they show. "
    "tacit cert issue rewrites it without comments.\n"
)
LARGEST_PORT = 65535


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
            scheme, _, _ = text.partition("://")
            raise DataError(f"{shown(text)}: expected host:port without {scheme}://")
        if not colon or not host:
            raise DataError(f"{shown(text)}: expected host:port, such as 'alice.example:7050'")
        if not _is_port(port):
            raise DataError(
                f"{shown(text)}: expected a port from 1 to {LARGEST_PORT} (0 for any free one), "
                f"got {shown(port)}"
            )
        return cls(_host(host, text), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_port(text: str) -> bool:
    if not (text.isascii() and text.isdigit()):
        return False
    return len(text) <= len(str(LARGEST_PORT)) and int(text) <= LARGEST_PORT


def _host(host: str, text: str) -> str:
    in_brackets = host.startswith("[") and host.endswith("]")
    try:
        version_6 = ipaddress.IPv6Address(host[1:-1] if in_brackets else host)
        if not ZONE.fullmatch(version_6.scope_id or ""):
            raise ValueError("a zone that is no interface's name")
    except ValueError:
        if in_brackets or not _is_name(host):
            raise DataError(
                f"{shown(text)}: {shown(host)} is not a host; expected a name or an IP address"
            ) from None
        return host
    if not in_brackets:
        raise DataError(f"{shown(text)}: write an IPv6 address in brackets, such as '[::1]:7050'")
    return str(version_6)


def _is_name(host: str) -> bool:
    """Whether it may be the name of a machine, which may have letters beyond ASCII."""
    try:
        host.encode("idna")
    except UnicodeError:  # an empty part, or one of more than 63 letters
        return False
    return HOST.fullmatch(host) is not None


@dataclass(frozen=True)
class Member:
    """A party; without an address it only dials out.

    With a `key_fingerprint`, the other parties refuse it with any other key.
    """

    name: str
    address: Address | None
    certificate: Path
    key: Path
    key_fingerprint: str | None = None

    def with_key(self, key_fingerprint: str) -> Member:
        """The same with this key pinned."""
        return replace(self, key_fingerprint=key_fingerprint)


@dataclass(frozen=True)
class Consortium:
    """Parties that trust the certificates of one authority."""

    name: str
    ca: Path
    members: dict[str, Member]

    @classmethod
    def find(cls, path: Path | None = None) -> Consortium:
        """The consortium in this file or folder.

        Without a path, the one in `consortium.yaml` here or in `consortium/`.
        """
        return cls.read(cls.locate(path))

    @staticmethod
    def locate(path: Path | None = None) -> Path:
        """The file that `find` reads."""
        if path is not None:
            return path / FILE if path.is_dir() else path
        for usual_path in USUAL_PATHS:
            if usual_path.exists():
                return usual_path
        paths = " nor ".join(map(str, USUAL_PATHS))
        raise DataError(
            f"there is neither {paths}; "
            "tacit cert init makes one, or ask the party that manages the consortium",
            parameters=("consortium",),
        )

    @classmethod
    def read(cls, path: Path) -> Consortium:
        """The consortium in a file; its paths are relative to that file."""
        settings = _settings(path)
        _check_keys(settings, ("consortium", "ca", "parties"), str(path))
        name = _text(settings, "consortium", None, str(path))
        parties = settings.get("parties")
        if not isinstance(parties, dict | None):
            raise DataError(
                f"{path}: parties: expected a line per party, such as 'alice: {{}}', "
                f"got {shown(parties)}"
            )
        members = {}
        try:
            for party, entry in (parties or {}).items():
                members[party] = _member(party, entry, path.parent)
            check_consortium_name(name)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        ca = _path(settings, "ca", path.parent, str(path), default="ca.pem")
        return cls(name, ca, members)

    def member(self, party: str) -> Member:
        """The party of this name."""
        if party not in self.members:
            hint = suggest(party, self.members) if self.members else "it has none yet"
            raise DataError(f"no party of {self.name} is called {party!r}; {hint}")
        return self.members[party]

    @property
    def pins(self) -> dict[str, str]:
        """The fingerprints of the parties' keys, of those that have one here."""
        fingerprints = {}
        for name, member in self.members.items():
            if member.key_fingerprint is not None:
                fingerprints[name] = member.key_fingerprint
        return fingerprints

    def with_member(self, member: Member) -> Consortium:
        """The same with this party, in the place of one of its name or at the end."""
        return replace(self, members={**self.members, member.name: member})

    def text(self, folder: Path) -> str:
        """The text of the file, if it lies in this folder."""
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

    >>> alice = default_member("alice", Path("consortium"))
    >>> print(alice.certificate, alice.key)
    consortium/alice.pem consortium/alice.key
    """
    return Member(name, address, folder / f"{name}.pem", folder / f"{name}.key")


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = parse(read_at_most(path, LARGEST).decode("utf-8"))
    except OSError as error:
        hint = "; tacit cert init makes one" if isinstance(error, FileNotFoundError) else ""
        raise DataError(f"cannot read the consortium {path}: {error.strerror}{hint}") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise DataError(
            f"cannot read the consortium {path}: it is not text; expected a YAML file"
        ) from None
    except yaml.YAMLError as error:
        raise DataError(f"{path} is not valid YAML: {reason(error)}") from None
    if not isinstance(settings, dict):
        # Text is not shown: it may be a key.
        content = "it is empty" if settings is None else "got something else"
        raise DataError(f"{path}: expected settings such as 'consortium: heart-study', {content}")
    return settings


def _member(name: Any, entry: Any, folder: Path) -> Member:
    """The party of an entry of the file."""
    if not isinstance(name, str):
        raise DataError(
            f"parties: YAML does not read {shown(name)} as text; put the party's name in quotes"
        )
    check_party_name(name)
    if not isinstance(entry, dict | None):
        raise DataError(
            f'parties: {name}: expected {{address: "host:port"}} or {{}}, got {shown(entry)}'
        )
    settings = entry or {}
    where = f"parties: {name}"
    _check_keys(settings, ("address", "certificate", "key", "key_fingerprint"), where)
    return Member(
        name,
        _address(settings, where),
        _path(settings, "certificate", folder, where, default=f"{name}.pem"),
        _path(settings, "key", folder, where, default=f"{name}.key"),
        _key_fingerprint(settings, where),
    )


def _address(settings: dict[str, Any], where: str) -> Address | None:
    if "address" not in settings:
        return None
    text = _text(settings, "address", None, where)
    try:
        return Address.parse(text)
    except DataError as error:
        raise DataError(f"{where}: address: {error}") from None


def _key_fingerprint(settings: dict[str, Any], where: str) -> str | None:
    if "key_fingerprint" not in settings:
        return None
    text = _text(settings, "key_fingerprint", None, where)
    try:
        return parse_fingerprint(text)
    except DataError as error:
        raise DataError(f"{where}: key_fingerprint: {error}") from None


def _path(settings: dict[str, Any], key: str, folder: Path, where: str, *, default: str) -> Path:
    text = _text(settings, key, default, where)
    try:
        return folder / expanded(text)
    except DataError as error:
        raise DataError(f"{where}: {key}: {error}") from None


def _text(settings: dict[str, Any], key: str, default: str | None, where: str) -> str:
    text = settings.get(key, default)
    if text is None and key not in settings:
        raise DataError(f"{where}: {key} is missing; add it, such as '{key}: heart-study'")
    if not isinstance(text, str) or not text:
        quotes = " in quotes" if text else ""
        raise DataError(f"{where}: {key}: expected text{quotes}, got {shown(text)}")
    if not text.isprintable():  # it is shown in terminals, which it could command
        raise DataError(f"{where}: {key}: expected text without control characters")
    return text


def _check_keys(settings: dict[Any, Any], names: Iterable[str], where: str) -> None:
    for key in settings:
        if key not in names:
            raise DataError(
                f"{where}: there is no setting {shown(key)}; {suggest(str(key), names)}"
            )


def _entry(member: Member, folder: Path) -> dict[str, str]:
    """What the file says of a party: nothing that goes without saying."""
    usual = default_member(member.name, folder)
    entry = {}
    if member.address is not None:
        entry["address"] = str(member.address)
    if member.certificate != usual.certificate:
        entry["certificate"] = _relative(member.certificate, folder)
    if member.key != usual.key:
        entry["key"] = _relative(member.key, folder)
    if member.key_fingerprint is not None:
        entry["key_fingerprint"] = member.key_fingerprint
    return entry


def _relative(path: Path, folder: Path) -> str:
    """From the folder, unless it is an absolute path to somewhere else."""
    if path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)
