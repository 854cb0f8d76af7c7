"""Who of a consortium dials whom."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.channel.certificates import check_identity
from tacit.channel.consortium import Address, Consortium
from tacit.channel.tls import TlsCarrier
from tacit.core.errors import StudyError


def meet(
    consortium: Consortium,
    me: str,
    others: Sequence[str] = (),
    *,
    listen: Address | None = None,
    connect: Address | None = None,
) -> tuple[list[str], TlsCarrier]:
    """The parties of a session, in the consortium's order, and this one's way to the others.

    Of two parties, the later one in the file dials the earlier; if that has no address, the other way round. `listen`
    is where this party waits instead; `connect`, between two, the address that it dials.
    """
    own = consortium.member(me)
    if me in others:
        raise StudyError(f"{me} is yourself; name the others: --with PARTY")
    chosen = {consortium.member(name).name for name in others} or set(consortium.members)
    names = [name for name in consortium.members if name in chosen | {me}]
    peers = [name for name in names if name != me]
    if not peers:
        raise StudyError(
            f"{consortium.name} has no party but {me}; add the others: tacit cert issue PARTY"
        )
    if connect is not None and (len(peers) > 1 or listen is not None):
        raise StudyError(
            "--connect is for one side of two parties; put addresses into the consortium file"
        )
    dialled = {peers[0]: connect} if connect is not None else {}
    if connect is None and not (listen is not None and len(peers) == 1):
        dialled = {
            peer: address for peer in peers if (address := _dialled(consortium, names, me, peer))
        }
    waits = len(dialled) < len(peers)
    check_identity(consortium.ca, own.certificate, own.key, me)
    network = TlsCarrier(
        consortium.ca,
        own.certificate,
        own.key,
        listen=(listen or own.address) if waits else None,
        connect=dialled,
    )
    return names, network


def _dialled(consortium: Consortium, names: list[str], me: str, peer: str) -> Address | None:
    """The peer's address, if it is for this side to dial."""
    mine, theirs = consortium.members[me].address, consortium.members[peer].address
    if mine is None and theirs is None:
        raise StudyError(
            f"neither {me} nor {peer} has an address; one needs --listen HOST:PORT, the other --connect"
        )
    later = names.index(me) > names.index(peer)
    return theirs if theirs is not None and (later or mine is None) else None
