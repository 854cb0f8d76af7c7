"""X25519 against RFC 7748, RFC 9380 and another implementation.

Without crypto_mb, only its absence is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tacit.core.errors import DataError, MissingDependencyError, StudyError
from tacit.vertical.groups import crypto_mb as loading
from tacit.vertical.groups.x25519 import X25519, A, P

GROUP = X25519()
# RFC 9380, appendix J.4.2: Q.x of each message
NU = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"
MAPPED = {
    b"": "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
    b"abc": "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
    b"abcdef0123456789": "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
    b"q128_" + b"q" * 128: "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
    b"a512_" + b"a" * 512: "3bcd651ee54d5f7b6013898aab251ee8ecc0688166fce6e9548d38472f6bd196",
}
LOW_ORDER = [  # besides 0, and the twist's
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]


def little(x: int) -> bytes:
    return x.to_bytes(32, "little")


@pytest.fixture(autouse=True)
def here(request: pytest.FixtureRequest) -> None:
    if "unloaded" in request.fixturenames:
        return
    try:
        GROUP.check()
    except (MissingDependencyError, StudyError) as error:
        pytest.skip(str(error))


def test_a_hash_is_the_rfcs_point_before_its_cofactor_is_cleared() -> None:
    assert GROUP.hash(list(MAPPED), NU) == b"".join(bytes.fromhex(x)[::-1] for x in MAPPED.values())


def test_every_hash_is_on_the_curve() -> None:
    raw = GROUP.hash([b"%d" % number for number in range(100)], b"tag")
    for at in range(0, len(raw), 32):
        x = int.from_bytes(raw[at : at + 32], "little")
        assert pow(x**3 + A * x**2 + x, P // 2, P) == 1


def test_the_function_is_that_of_rfc_7748() -> None:
    """Section 5.2, its 1000 iterations: scalar and coordinate change places each time.

    So most coordinates are the twist's.
    """
    key = point = little(9)
    for _ in range(1000):
        product, wrong = loading.crypto_mb().multiply(point, key)
        assert wrong is None
        point, key = key, product
    assert key.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_any_number_of_elements_agrees_with_another_implementation(count: int) -> None:
    x25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
    key = GROUP.draw_key()
    points = GROUP.hash([b"%d" % number for number in range(count)], b"tag")
    private_key = x25519.X25519PrivateKey.from_private_bytes(key)
    expected = []
    for at in range(0, 32 * count, 32):
        point = x25519.X25519PublicKey.from_public_bytes(points[at : at + 32])
        expected.append(private_key.exchange(point))
    assert GROUP.encrypt(points, key) == b"".join(expected)


def test_the_twist_and_what_is_not_canonical_are_refused() -> None:
    good = GROUP.hash([b"v"], b"tag")
    twist = next(x for x in range(2, 100) if pow(x**3 + A * x**2 + x, P // 2, P) != 1)
    wrong = {
        little(0): "is the identity",
        little(twist): "is not on the curve",
        little(P - 1): "is not on the curve",  # of order 4 on the twist
        little(P): "is not a canonical encoding",
        little(P + 9): "is not a canonical encoding",
        good[:31] + bytes([good[31] | 128]): "is not a canonical encoding",
    }
    for element, reason in wrong.items():
        with pytest.raises(DataError, match=f"^x25519: element 10 of 11 {reason}$"):
            GROUP.encrypt(good * 9 + element + good, GROUP.draw_key())


@pytest.mark.parametrize("x", LOW_ORDER)
@pytest.mark.parametrize("before", [0, 5, 8, 12])
def test_points_of_low_order_are_refused(x: int, before: int) -> None:
    good = GROUP.hash([b"v"], b"tag")
    with pytest.raises(
        DataError, match=f"^x25519: element {before + 1} of {before + 2} gives the identity$"
    ):
        GROUP.encrypt(good * before + little(x) + good, GROUP.draw_key())


def test_a_key_of_another_length_is_refused_before_memory_is_read() -> None:
    with pytest.raises(DataError, match="expected a key of 32 bytes, got 31"):
        GROUP.encrypt(GROUP.hash([b"v"], b"tag"), bytes(31))


# Where it is not


@pytest.fixture
def unloaded() -> Iterator[None]:
    loading.crypto_mb.cache_clear()
    yield
    loading.crypto_mb.cache_clear()


def test_without_the_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    def absent() -> Any:
        raise OSError("libcrypto_mb.so: cannot open shared object file")

    monkeypatch.setattr(loading, "_library", absent)
    with pytest.raises(
        MissingDependencyError,
        match=r'^x25519 needs crypto_mb; run: pip install "tacit\[crypto-mb\]"$',
    ):
        GROUP.check()


def test_a_processor_without_the_instructions_is_told_what_to_take(
    monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    class Function:
        def __call__(self, *inputs: Any) -> int:
            return 0  # not applicable

    class Library:
        def __getitem__(self, name: str) -> Function:
            return Function()

    monkeypatch.setattr(loading, "_library", Library)
    with pytest.raises(
        StudyError, match="processor with AVX-512 IFMA, which this one lacks; use ristretto255"
    ):
        GROUP.check()
