"""ristretto255 against the vectors of RFC 9496, appendix A, and libsodium from both its places."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from hashlib import sha512
from pathlib import Path

import pytest

from tacit.core.errors import DataError, MissingDependencyError
from tacit.vertical.groups import sodium as loading
from tacit.vertical.groups.ristretto255 import Ristretto255
from tacit.vertical.groups.sodium import Sodium, sodium

ORDER = 2**252 + 27742317777372353535851937790883648493  # RFC 9496, section 4.4
MULTIPLES = [  # A.1, of the generator, from 1 to 15
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
    "da80862773358b466ffadfe0b3293ab3d9fd53c5ea6c955358f568322daf6a57",
    "e882b131016b52c1d3337080187cf768423efccbb517bb495ab812c4160ff44e",
    "f64746d3c92b13050ed8d80236a7f0007c3b3f962f5ba793d19a601ebb1df403",
    "44f53520926ec81fbd5a387845beb7df85a96a24ece18738bdcfa6a7822a176d",
    "903293d8f2287ebe10e2374dc1a53e0bc887e592699f02d077d5263cdd55601c",
    "02622ace8f7303a31cafc63f8fc48fdc16e1c8c8d234b2f0d6685282a9076031",
    "20706fd788b2720a1ed2a5dad4952b01f413bcf0e7564de8cdc816689e2db95f",
    "bce83f8ba5dd2fa572864c24ba1810f9522bc6004afe95877ac73241cafdab42",
    "e4549ee16b9aa03099ca208c67adafcafa4c3f3e4e5303de6026e3ca8ff84460",
    "aa52e000df2e16f55fb1032fc33bc42742dad6bd5a8fc0be0167436c5948501f",
    "46376b80f409b29dc2b5f6f0c52591990896e5716f41477cd30085ab7f10301e",
    "e0c418f7c8d9c4cdd7395b93ea124f3ad99021bb681dfc3302a9d99a2e53e64e",
]
BAD = {  # A.2
    "not canonical field elements": """
00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff
ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
""",
    "negative field elements": """
0100000000000000000000000000000000000000000000000000000000000000
01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20
c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562
c940e5a4404157cfb1628b108db051a8d439e1a421394ec4ebccb9ec92a8ac78
47cfc5497c53dc8e61c91d17fd626ffb1c49e2bca94eed052281b510b1117a24
f1c6165d33367351b0da8f6e4511010c68174a03b6581212c71c0e1d026c3c72
87260f7a2f12495118360f02c26a470f450dadf34a413d21042b43b9d93e1309
""",
    "no square": """
26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371
4eac077a713c57b4f4397629a4145982c661f48044dd3f96427d40b147d9742f
de6a7b00deadc788eb6b6c8d20c0ae96c2f2019078fa604fee5b87d6e989ad7b
bcab477be20861e01e4a0e295284146a510150d9817763caf1a6f4b422d67042
2a292df7e32cababbd9de088d1d1abec9fc0440f637ed2fba145094dc14bea08
f4a9e534fc0d216c44b218fa0c42d99635a0127ee2e53c712f70609649fdff22
8268436f8c4126196cf64b3c7ddbda90746a378625f9813dd9b8457077256731
2810e5cbc2cc4d4eece54f61c6f69758e289aa7ab440b3cbeaa21995c2f4232b
""",
    "negative xy": """
3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e
a45fdc55c76448c049a1ab33f17023edfb2be3581e9c7aade8a6125215e04220
d483fe813c6ba647ebbfd3ec41adca1c6130c2beeee9d9bf065c8d151c5f396e
8a2e1d30050198c65a54483123960ccc38aef6848e1ec8f5f780e8523769ba32
32888462f8b486c68ad7dd9610be5192bbeaf3b443951ac1a8118419d9fa097b
227142501b9d4355ccba290404bde41575b037693cef1f438c47f8fbf35d1165
5c37cc491da847cfeb9281d407efc41e15144c876e0170b499a96a22ed31e01e
445425117cb8c90edcbc7c1cc0e74f747f2c1efa5630a967c64f287792a48a4b
""",
    "s = -1, where y = 0": "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}
LABELS = {  # A.3, of SHA-512 of these
    b"Ristretto is traditionally a short shot of espresso coffee": (
        "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"
    ),
    b"made with the normal amount of ground coffee but extracted with": (
        "f26e5b6f7d362d2d2a94c5d0e7602cb4773c95a2e5c31a64f133189fa76ed61b"
    ),
    b"about half the amount of water in the same amount of time": (
        "006ccd2a9e6867e6a2c5cea83d3302cc9de128dd2a9a57dd8ee7b9d7ffe02826"
    ),
    b"by using a finer grind.": (
        "f8f0c87cf237953c5890aec3998169005dae3eca1fbb04548c635953c817f92a"
    ),
    b"This produces a concentrated shot of coffee per volume.": (
        "ae81e7dedf20a497e10c304a765c1767a42d6e06029758d2d7e8ef7cc4c41179"
    ),
    b"Just pulling a normal shot short will produce a weaker shot": (
        "e2705652ff9f5e44d3e841bf1c251cf7dddb77d140870d1ab2ed64f1a9ce8628"
    ),
    b"and is not a Ristretto as some believe.": (
        "80bd07262511cdde4863f8a7434cef696750681cb9510eea557088f76d9e5065"
    ),
}
GENERATOR = bytes.fromhex(MULTIPLES[0])


def key(scalar: int) -> bytes:
    return scalar.to_bytes(32, "little")


def bundled() -> Sodium:
    pytest.importorskip("rbcl")
    return Sodium(next(loading._bundled()))


def test_multiples_of_the_generator_are_those_of_the_rfc() -> None:
    assert [Ristretto255().encrypt(GENERATOR, key(k)).hex() for k in range(1, 16)] == MULTIPLES


def test_the_one_way_map_is_that_of_the_rfc() -> None:
    points = sodium().map_uniform(b"".join(sha512(label).digest() for label in LABELS))
    assert points.hex() == "".join(LABELS.values())


def test_a_hash_is_that_of_the_suite_of_rfc_9380() -> None:
    """RFC 9497, appendix A.1.1.1: the first BlindedElement is H(Input)^Blind."""
    element = Ristretto255().hash([b"\0"], b"HashToGroup-OPRFV1-\0-ristretto255-SHA512")
    blind = int.from_bytes(
        bytes.fromhex("64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706"), "little"
    )
    blinded = "609a0ae68c15a3cf6903766461307e5c8bb2f95e7e6550e1ffa2dc99e412803c"
    assert Ristretto255().encrypt(element, key(blind)).hex() == blinded


@pytest.mark.parametrize("source", ["installed or bundled", "bundled"])
@pytest.mark.parametrize("kind", list(BAD))
def test_bad_encodings_are_refused_by_the_multiplication_itself(
    kind: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "bundled":
        library = bundled()
        monkeypatch.setattr("tacit.vertical.groups.ristretto255.sodium", lambda: library)
    for bad in BAD[kind].split():
        with pytest.raises(
            DataError, match=r"^ristretto255: element 2 of 3 is not a canonical encoding$"
        ):
            Ristretto255().encrypt(GENERATOR + bytes.fromhex(bad) + GENERATOR, key(5))


def test_the_identity_is_refused_and_so_is_a_product_that_is_the_identity() -> None:
    with pytest.raises(DataError, match=r"^ristretto255: element 2 of 2 is the identity$"):
        Ristretto255().encrypt(memoryview(GENERATOR + bytes(32)), key(5))
    for zero in (0, ORDER):
        with pytest.raises(DataError, match="element 1 of 1 gives the identity"):
            Ristretto255().encrypt(GENERATOR, key(zero))


def test_a_key_is_a_scalar_from_one_to_the_order_and_its_inverse_undoes_it() -> None:
    group = Ristretto255()
    x = group.hash([b"v", b"w"], b"tag")
    for _ in range(5):
        secret = group.draw_key()
        scalar = int.from_bytes(secret, "little")
        assert 0 < scalar < ORDER
        assert group.encrypt(group.encrypt(x, secret), key(pow(scalar, -1, ORDER))) == x


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length_is_refused_before_memory_is_read(length: int) -> None:
    with pytest.raises(DataError, match=f"expected a key of 32 bytes, got {length}"):
        Ristretto255().encrypt(GENERATOR, bytes(length))


# Where libsodium comes from


def test_the_bundled_library_gives_the_same_bytes_as_the_systems() -> None:
    installed = next(loading._installed(), None)
    if installed is None:
        pytest.skip("this machine has no libsodium")
    uniform = b"".join(sha512(bytes([number])).digest() for number in range(20))
    systems = Sodium(installed)
    copy = bundled()
    points = systems.map_uniform(uniform)
    assert points == copy.map_uniform(uniform)
    scalar = copy.draw_scalar()
    assert systems.multiply(points, scalar) == copy.multiply(points, scalar)


def test_the_bundled_librarys_temporary_file_is_removed() -> None:
    library = next(iter(loading._bundled()), None)
    if library is None:
        pytest.skip("rbcl is not installed")
    assert Path(library._name).parent == Path(tempfile.gettempdir())
    assert not Path(library._name).exists()


@pytest.fixture
def unloaded() -> Iterator[None]:
    loading.sodium.cache_clear()
    yield
    loading.sodium.cache_clear()


def test_without_any_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    monkeypatch.setattr(loading, "_installed", lambda: iter(()))
    monkeypatch.setattr(loading, "_bundled", lambda: iter(()))
    with pytest.raises(MissingDependencyError, match=r'run: pip install "tacit\[psi\]"$') as caught:
        Ristretto255().check()
    assert "\n" not in str(caught.value)


def test_a_library_without_ristretto_falls_through_to_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    pytest.importorskip("rbcl")

    class Old:
        def __getitem__(self, name: str) -> None:
            raise AttributeError(name)

    monkeypatch.setattr(loading, "_installed", lambda: iter([Old()]))
    Ristretto255().check()
    assert Ristretto255().encrypt(GENERATOR, key(2)).hex() == MULTIPLES[1]


def test_a_name_that_is_no_library_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    monkeypatch.setattr(loading, "NAMES", ("libnothing.so.99",))
    monkeypatch.setattr(loading.ctypes.util, "find_library", lambda _: None)
    assert list(loading._installed()) == []
