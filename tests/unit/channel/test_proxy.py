"""Parties reach each other through an HTTP proxy, that of the environment or another one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest
from consortia import identity
from loops import run
from meetings import PATIENT, Party, dialler, exchange, hurry, listener
from proxies import HttpProxy

from tacit.channel import tls
from tacit.channel.consortium import Address
from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.proxy import Proxy, choose_proxy
from tacit.core.errors import StudyError

FAR = "hospital.example"
PASSWORD = "s3cret@word"  # no part of it may be seen
IN_URL = "bob:s3cret%40word"


@pytest.fixture(autouse=True)
def _alone_and_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    for name in ("https_proxy", "no_proxy", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def meet(proxy: HttpProxy, url: str) -> tuple[list[bool], Party]:
    """What both sides got, and the one that dialled through the proxy."""
    alice = listener("alice", "bob")
    listening = asyncio.create_task(alice.endpoint.run(exchange()))
    bob = dialler("bob", {"alice": await alice.address()}, proxy=url)
    results = await asyncio.gather(listening, bob.endpoint.run(exchange()))
    return results, bob


async def give_up(url: str, target: Address) -> tuple[str, Party]:
    """The error of a side that reaches nobody through this proxy."""
    timing = replace(PATIENT, away=0.2)
    bob = dialler("bob", {"alice": target}, proxy=url, timing=timing)
    with pytest.raises(ChannelError) as caught:
        await bob.endpoint.run(exchange())
    return str(caught.value), bob


# the way through it


def test_a_peer_is_reached_through_the_proxy() -> None:
    async def main() -> None:
        async with HttpProxy() as proxy:
            results, bob = await meet(proxy, proxy.url)
            assert results == [True, True]
            target = bob.carrier.connect["alice"]
            assert proxy.requests == [f"CONNECT {target} HTTP/1.1"]
            assert proxy.passed > 1000
            where = f"{target} through the proxy 127.0.0.1:{proxy.port}"
            assert bob.carrier.where("alice") == where

    run(main())


def test_the_proxy_is_told_the_name_of_the_peer_which_only_it_may_know() -> None:
    async def main() -> None:
        async with HttpProxy() as proxy:
            proxy.refusals = 10**6
            for host, written in (
                ("nobody.invalid", "nobody.invalid"),
                ("2001:db8::1", "[2001:db8::1]"),
            ):
                await give_up(proxy.url, Address(host, 7050))
                assert proxy.requests[-1] == f"CONNECT {written}:7050 HTTP/1.1"

    run(main())


def test_a_proxy_that_refuses_for_a_while_ends_nothing() -> None:
    async def main() -> None:
        async with HttpProxy() as proxy:
            proxy.refusals = 3
            results, bob = await meet(proxy, proxy.url)
            assert results == [True, True]
            assert proxy.answers == [502, 502, 502, 200]
            reason = "the proxy HERE said 502 Bad Gateway"
            said = f"waiting for alice to answer at HERE through the proxy HERE ({reason})"
            assert bob.notes.count(said) == 1

    run(main())


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200", b"x" * (2 << 20), b"\r\n\r\n"]
)
def test_what_is_no_proxy_is_told(answer: bytes) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async def main() -> str:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            error, _ = await give_up(f"127.0.0.1:{port}", Address(FAR, 7050))
        return error

    error = run(main())
    assert "\n" not in error
    assert len(error) < 500
    reason = error.partition(" within ")[2]
    assert "(the proxy " in reason


def test_a_proxy_that_is_away_is_told_apart_from_a_peer_that_is_away() -> None:
    async def main() -> tuple[str, int]:
        async with HttpProxy() as proxy:
            port = proxy.port
        return (await give_up(f"127.0.0.1:{port}", Address(FAR, 7050)))[0], port

    error, port = run(main())
    assert f"(the proxy 127.0.0.1:{port} cannot be reached: Connection refused)" in error


def test_a_proxy_that_says_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE", 0.05)
    calls = []

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer)

    async def main() -> None:
        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await give_up(f"127.0.0.1:{port}", Address(FAR, 7050))
            for writer in calls:
                writer.transport.abort()

    run(main())
    assert len(calls) > 1


# lines that are idle


def rest(seconds: float) -> Callable[[Mapping[str, Link]], Awaitable[bool]]:
    """A program in which nobody says anything for a while."""

    async def program(links: Mapping[str, Link]) -> bool:
        await exchange()(links)
        await asyncio.sleep(seconds)
        (link,) = links.values()
        await link.send("y", b"rested")
        return await link.receive("y") == b"rested"

    return program


def forgotten(beat: float) -> int:
    """How many lines a proxy forgets where parties rest for longer than it keeps idle ones."""

    async def main() -> int:
        async with HttpProxy(idle=0.4) as proxy:
            timing = replace(PATIENT, beat=beat)
            alice = listener("alice", "bob", timing=timing)
            program = rest(1.2)
            listening = asyncio.create_task(alice.endpoint.run(program))
            target = await alice.address()
            bob = dialler("bob", {"alice": target}, timing=timing, proxy=proxy.url)
            results = await asyncio.gather(listening, bob.endpoint.run(program))
            assert results == [True, True]
            return proxy.forgotten

    return run(main())


def test_signs_of_life_keep_a_line_that_is_forgotten_when_it_is_idle() -> None:
    assert forgotten(beat=0.05) == 0
    assert forgotten(beat=60) > 0


# passwords


def test_a_proxy_that_asks_for_a_password_gets_it_and_nobody_else_sees_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def main() -> str:
        async with HttpProxy(credentials=f"bob:{PASSWORD}") as proxy:
            url = f"http://{IN_URL}@127.0.0.1:{proxy.port}"
            proxy.refusals = 1
            results, bob = await meet(proxy, url)
            assert results == [True, True]
            assert proxy.answers == [502, 200]
            return f"{bob.events} {bob.carrier.where('alice')} {bob.carrier.proxies}"

    check_hidden(run(main()) + "".join(capfd.readouterr()))


@pytest.mark.parametrize("credentials", ["", "bob:wr0ng@", "s3cret:word@"])
def test_without_the_right_password_the_user_hears_of_407_and_what_to_give(
    credentials: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> tuple[str, Party, list[int]]:
        async with HttpProxy(credentials=f"bob:{PASSWORD}") as proxy:
            url = f"http://{credentials}127.0.0.1:{proxy.port}"
            error, bob = await give_up(url, Address(FAR, 7050))
            return error, bob, proxy.answers

    error, bob, answers = run(main())
    assert set(answers) == {407}
    assert "said 407 Proxy Authentication Required; give the proxy as" in error
    assert "http://name:password@host:port" in error
    seen = f"{error} {bob.events} {bob.carrier.proxies}" + "".join(capfd.readouterr())
    assert "wr0ng" not in seen
    check_hidden(seen)


def test_a_name_beyond_ascii_and_bytes_that_are_no_letters_are_sent() -> None:
    proxy = Proxy(Address("proxy.example", 3128), "us\udce9r:p")
    request = proxy._request(Address("b\u00fccher.example", 7050))
    assert request.startswith(b"CONNECT xn--bcher-kva.example:7050 HTTP/1.1\r\n")
    assert base64.b64encode(b"us\xe9r:p") in request


@pytest.mark.parametrize(
    "text",
    [
        f"https://{IN_URL}@proxy.example:3128",
        f"socks5://{IN_URL}@proxy.example:1080",
        f"http://{IN_URL}@proxy.example:99999",
        f"http://{IN_URL}@proxy.example:port",
        f"http://{IN_URL}@",
        f"http://{IN_URL}@[::1",
        f"{IN_URL}@[proxy:1",
        f"http://{IN_URL}@a..b:3128",
        f"http://{IN_URL}@{'a' * 64}.example:3128",
        "",
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_what_may_be_a_password(
    text: str,
) -> None:
    with pytest.raises(StudyError) as caught:
        Proxy.parse(text)
    assert caught.value.parameters == ("proxy",)
    assert "\n" not in str(caught.value)
    check_hidden(str(caught.value) + repr(caught.value.__cause__))


def check_hidden(text: str) -> None:
    code = base64.b64encode(f"bob:{PASSWORD}".encode()).decode()
    for secret in (PASSWORD, "s3cret", IN_URL, code):
        assert secret not in text


# which proxy


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_proxy(None, FAR) is None
    monkeypatch.setenv("HTTPS_PROXY", f"http://{IN_URL}@proxy.example:8080/")
    proxy = Proxy(Address("proxy.example", 8080), f"bob:{PASSWORD}")
    assert choose_proxy(None, FAR) == proxy
    connect = {"alice": Address(FAR, 7050), "carol": Address("127.0.0.1", 7050)}
    carrier = identity("bob").carrier(connect=connect)
    assert carrier.proxies == {"alice": proxy, "carol": None}
    check_hidden(carrier.where("alice"))


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY"])
@pytest.mark.parametrize("url", ["proxy.example", "http://proxy.example", "proxy.example:3128"])
def test_the_environments_proxy_may_lack_what_is_usual(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, url)
    assert choose_proxy(None, FAR) == Proxy(Address("proxy.example", 3128))


@pytest.mark.parametrize(
    ("exceptions", "host"),
    [
        (FAR, FAR),
        (".example", FAR),
        ("example", FAR),
        ("else.where, hospital.example", FAR),
        ("10.0.0.7", "10.0.0.7"),
        ("", "127.0.0.1"),
        ("", "127.9.9.9"),
        ("", "::1"),
        ("", "localhost"),
    ],
)
def test_the_environments_proxy_is_not_for_these(
    exceptions: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:8080")
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert choose_proxy(None, host) is None
    assert choose_proxy(None, "bank.test") is not None
    monkeypatch.setenv("NO_PROXY", "*")
    assert choose_proxy(None, "bank.test") is None


def test_a_proxy_that_is_set_counts_more_than_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:8080")
    monkeypatch.setenv("NO_PROXY", "*")
    assert choose_proxy("http://ours.example", FAR) == Proxy(Address("ours.example", 3128))
    assert choose_proxy("ours.example:1", "127.0.0.1") == Proxy(Address("ours.example", 1))
    monkeypatch.delenv("NO_PROXY")
    assert choose_proxy("none", FAR) is None
    assert choose_proxy("NONE", FAR) is None
