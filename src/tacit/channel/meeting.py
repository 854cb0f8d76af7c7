"""Who of a consortium dials whom."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.channel.consortium import Address, Consortium
from tacit.channel.credentials import Credentials
from tacit.channel.passphrases import Passphrase
from tacit.channel.tls import TlsCarrier
from tacit.core.errors import StudyError
from tacit.core.events import OnEvent, Warned, ignore


def meet(
    consortium: Consortium,
    me: str,
    others: Sequence[str] = (),
    *,
    listen: Address | None = None,
    connect: Address | None = None,
    proxy: str | None = None,
    passphrase: Passphrase = None,
    on_event: OnEvent = ignore,
) -> tuple[list[str], TlsCarrier]:
    """The parties of a session, in the consortium's order, and this one's way to the others.

    Of two parties, the later one in the file dials the earlier; if the earlier has no address, the
    other way round. `listen` is where this party waits instead; `connect`, between two, the address
    that it dials; `proxy` is an HTTP proxy on the way. `passphrase` is that of this party's key.
    """
    member = consortium.member(me)
    names = _parties(consortium, me, others)
    peers = [name for name in names if name != me]
    if connect is not None and (len(peers) > 1 or listen is not None):
        raise StudyError(
            "connect works only between two parties, of which the other one listens; "
            "for more parties, put addresses into the consortium file",
            parameters=("connect",),
        )
    dialled: dict[str, Address] = {}
    if connect is not None:
        dialled[peers[0]] = connect
    elif listen is None or len(peers) > 1:
        dialled = _addresses_to_dial(consortium, names, me)
    pins = consortium.pins
    credentials = Credentials.read(consortium.ca, member.certificate, member.key, passphrase)
    credentials.check(me, pin=pins.get(me))
    for text in credentials.expiries():
        on_event(Warned(text))
    address = None
    if len(dialled) < len(peers):  # somebody dials us
        address = listen or member.address
    carrier = TlsCarrier(credentials, listen=address, connect=dialled, pins=pins, proxy=proxy)
    return names, carrier


def _parties(consortium: Consortium, me: str, others: Sequence[str]) -> list[str]:
    """The parties of the session: these others, or all of the consortium."""
    if me in others:
        raise StudyError(f"{me} is yourself; name the other parties", parameters=("others",))
    chosen = {consortium.member(name).name for name in others} or set(consortium.members)
    chosen.add(me)
    if chosen == {me}:
        raise StudyError(
            f"{consortium.name} has no party except {me}; add the others: tacit cert request PARTY"
        )
    return [name for name in consortium.members if name in chosen]


def _nowhere_to_meet(me: str, peer: str, parties: int) -> StudyError:
    """Only two parties can name an address without the consortium's file."""
    text = f"neither {me} nor {peer} has an address"
    if parties > 2:
        return StudyError(f"{text}; put one into the consortium's file: tacit cert issue")
    return StudyError(
        f"{text}; one of them has to listen at an address, and the other to connect to it",
        parameters=("listen", "connect"),
    )


def _addresses_to_dial(consortium: Consortium, names: list[str], me: str) -> dict[str, Address]:
    """The addresses of those peers that it is for this side to dial."""
    addresses = {}
    our_address = consortium.members[me].address
    for peer in names:
        if peer == me:
            continue
        address = consortium.members[peer].address
        if address is None and our_address is None:
            raise _nowhere_to_meet(me, peer, len(names))
        is_later = names.index(me) > names.index(peer)
        if address is not None and (is_later or our_address is None):
            addresses[peer] = address
    return addresses
