"""X25519 by libsodium and by crypto_mb, against RFC 7748, RFC 9380 and another implementation.

What needs crypto_mb is skipped where it cannot work.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tacit.core.errors import DataError
from tacit.vertical.groups import crypto_mb as loading
from tacit.vertical.groups.sodium import sodium
from tacit.vertical.groups.x25519 import COFACTOR, ORDER, TOP, X25519, A, P

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


Multiply = Callable[[bytes, bytes], tuple[bytes, int | None]]
BACKENDS = ("libsodium", "crypto_mb")


def multiplication(backend: str) -> Multiply:
    if backend == "libsodium":
        return sodium().multiply_x25519
    library = loading.crypto_mb()
    if library is None:
        pytest.skip("this machine has no crypto_mb, or not the processor for it")
    return library.multiply


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which library the group multiplies by."""
    name: str = request.param
    multiplication(name)
    if name == "libsodium":
        monkeypatch.setattr("tacit.vertical.groups.x25519.crypto_mb", lambda: None)
    return name


def test_a_hash_is_the_rfcs_point_before_its_cofactor_is_cleared() -> None:
    assert GROUP.hash(list(MAPPED), NU) == b"".join(bytes.fromhex(x)[::-1] for x in MAPPED.values())


def test_every_hash_is_on_the_curve() -> None:
    raw = GROUP.hash([b"%d" % number for number in range(100)], b"tag")
    for at in range(0, len(raw), 32):
        x = int.from_bytes(raw[at : at + 32], "little")
        assert pow(x**3 + A * x**2 + x, P // 2, P) == 1


@pytest.mark.parametrize("library", BACKENDS)
def test_the_function_is_that_of_rfc_7748(library: str) -> None:
    """Section 5.2, its 1000 iterations: scalar and coordinate change places each time.

    So most coordinates are the twist's.
    """
    multiply = multiplication(library)
    key = point = little(9)
    for _ in range(1000):
        product, wrong = multiply(point, key)
        assert wrong is None
        point, key = key, product
    assert key.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@pytest.mark.parametrize(
    ("scalar", "point", "product"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
@pytest.mark.parametrize("library", BACKENDS)
def test_products_are_those_of_rfc_7748(
    library: str, scalar: str, point: str, product: str
) -> None:
    """Section 5.2; the second coordinate has the bit set that is to be ignored."""
    products, wrong = multiplication(library)(bytes.fromhex(point), bytes.fromhex(scalar))
    assert (products.hex(), wrong) == (product, None)


@pytest.mark.parametrize("count", [1, 8, 100])
def test_both_libraries_give_the_same_bytes(count: int) -> None:
    points = GROUP.hash([b"%d" % number for number in range(count)], b"tag")
    for _ in range(20):
        key = GROUP.draw_key()
        ours, theirs = (multiplication(name)(points, key) for name in BACKENDS)
        assert ours == theirs


def test_a_key_is_what_x25519_makes_of_it() -> None:
    """Multiples of 8 from 2^254 to 2^255; the five other bits change nothing."""
    x = GROUP.hash([b"v"], b"tag")
    for _ in range(20):
        key = GROUP.draw_key()
        exponent = GROUP._exponent(key)
        assert TOP <= exponent < 2 * TOP
        assert exponent % COFACTOR == 0
        assert GROUP.encrypt(x, little(exponent)) == GROUP.encrypt(x, key)


def test_every_exponent_gets_a_key_that_x25519_leaves_as_it_is() -> None:
    """The key is the exponent or its negative modulo the order."""
    keys = [GROUP._key(GROUP._exponent(GROUP.draw_key()) % ORDER) for _ in range(50)]
    exponents = [secrets.randbelow(ORDER) for _ in range(200)]
    for exponent, key in [(e, GROUP._key(e)) for e in exponents]:
        number = int.from_bytes(key, "little")
        assert number % ORDER in (exponent, ORDER - exponent)
        assert GROUP._exponent(key) == number
    assert len(set(keys)) == 50


@pytest.mark.parametrize("exponent", [0, 8, ORDER - 8])
def test_an_exponent_without_a_key_is_refused(exponent: int) -> None:
    with pytest.raises(DataError, match="x25519: no key has this exponent"):
        GROUP._key(exponent)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_any_number_of_elements_agrees_with_another_implementation(
    count: int, backend: str
) -> None:
    x25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
    key = GROUP.draw_key()
    points = GROUP.hash([b"%d" % number for number in range(count)], b"tag")
    private_key = x25519.X25519PrivateKey.from_private_bytes(key)
    expected = []
    for at in range(0, 32 * count, 32):
        point = x25519.X25519PublicKey.from_public_bytes(points[at : at + 32])
        expected.append(private_key.exchange(point))
    assert GROUP.encrypt(points, key) == b"".join(expected)


def test_the_twist_and_what_is_not_canonical_are_refused(backend: str) -> None:
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
def test_points_of_low_order_are_refused(x: int, before: int, backend: str) -> None:
    good = GROUP.hash([b"v"], b"tag")
    with pytest.raises(
        DataError, match=f"^x25519: element {before + 1} of {before + 2} gives the identity$"
    ):
        GROUP.encrypt(good * before + little(x) + good, GROUP.draw_key())


def test_a_key_of_another_length_is_refused_before_memory_is_read(backend: str) -> None:
    with pytest.raises(DataError, match="expected a key of 32 bytes, got 31"):
        GROUP.encrypt(GROUP.hash([b"v"], b"tag"), bytes(31))


# Where it is not


@pytest.fixture
def unloaded() -> Iterator[None]:
    loading.crypto_mb.cache_clear()
    yield
    loading.crypto_mb.cache_clear()


class Missing:
    """A way to load the library that ends as on a machine without it."""

    def __call__(self) -> Any:
        raise OSError("libcrypto_mb.so: cannot open shared object file")


class Unfit:
    """A library that says that it is not for this processor."""

    def __getitem__(self, name: str) -> Any:
        return Inapplicable()


class Inapplicable:
    def __call__(self, *inputs: Any) -> int:
        return 0


class TooOld:
    def __getitem__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.mark.parametrize("load", [Missing(), Unfit, TooOld], ids=["missing", "unfit", "too old"])
def test_without_crypto_mb_libsodium_multiplies(
    load: Any, monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    expected = sodium().multiply_x25519(little(9), little(8 + TOP))[0]
    monkeypatch.setattr(loading, "_library", load)
    assert loading.crypto_mb() is None
    GROUP.check()
    assert GROUP._products(little(9), little(8 + TOP)) == expected
