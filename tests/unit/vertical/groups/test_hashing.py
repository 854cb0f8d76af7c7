"""Message expansion against the vectors of RFC 9380, appendix K."""

from __future__ import annotations

from hashlib import sha512

import pytest

from tacit.core.errors import StudyError
from tacit.vertical.groups.hashing import expand_message_xmd

MESSAGES = [b"", b"abc", b"abcdef0123456789", b"q128_" + b"q" * 128, b"a512_" + b"a" * 512]
K1 = {  # SHA-256
    32: [
        "68a985b87eb6b46952128911f2a4412bbc302a9d759667f87f7a21d803f07235",
        "d8ccab23b5985ccea865c6c97b6e5b8350e794e603b4b97902f53a8a0d605615",
    ]
}
K2 = {  # SHA-256, and a tag of 256 bytes
    32: [
        "e8dc0c8b686b7ef2074086fbdd2f30e3f8bfbd3bdf177f73f04b97ce618a3ed3",
        "52dbf4f36cf560fca57dedec2ad924ee9c266341d8f3d6afe5171733b16bbb12",
    ]
}
K3 = {  # SHA-512
    32: [
        "6b9a7312411d92f921c6f68ca0b6380730a1a4d982c507211a90964c394179ba",
        "0da749f12fbe5483eb066a5f595055679b976e93abe9be6f0f6318bce7aca8dc",
        "087e45a86e2939ee8b91100af1583c4938e0f5fc6c9db4b107b83346bc967f58",
        "7336234ee9983902440f6bc35b348352013becd88938d2afec44311caf8356b3",
        "57b5f7e766d5be68a6bfe1768e3c2b7f1228b3e4b3134956dd73a59b954c66f4",
    ],
    128: [
        "41b037d1734a5f8df225dd8c7de38f851efdb45c372887be655212d07251b921b052b62eaed99b46f72f2ef4cc96bfaf"
        "254ebbbec091e1a3b9e4fb5e5b619d2e0c5414800a1d882b62bb5cd1778f098b8eb6cb399d5d9d18f5d5842cf5d13d7e"
        "b00a7cff859b605da678b318bd0e65ebff70bec88c753b159a805d2c89c55961",
        "7f1dddd13c08b543f2e2037b14cefb255b44c83cc397c1786d975653e36a6b11bdd7732d8b38adb4a0edc26a0cef4bb4"
        "5217135456e58fbca1703cd6032cb1347ee720b87972d63fbf232587043ed2901bce7f22610c0419751c065922b48843"
        "1851041310ad659e4b23520e1772ab29dcdeb2002222a363f0c2b1c972b3efe1",
        "3f721f208e6199fe903545abc26c837ce59ac6fa45733f1baaf0222f8b7acb0424814fcb5eecf6c1d38f06e9d0a6ccfb"
        "f85ae612ab8735dfdf9ce84c372a77c8f9e1c1e952c3a61b7567dd0693016af51d2745822663d0c2367e3f4f0bed827f"
        "eecc2aaf98c949b5ed0d35c3f1023d64ad1407924288d366ea159f46287e61ac",
        "b799b045a58c8d2b4334cf54b78260b45eec544f9f2fb5bd12fb603eaee70db7317bf807c406e26373922b7b8920fa29"
        "142703dd52bdf280084fb7ef69da78afdf80b3586395b433dc66cde048a258e476a561e9deba7060af40adf30c64249c"
        "a7ddea79806ee5beb9a1422949471d267b21bc88e688e4014087a0b592b695ed",
        "05b0bfef265dcee87654372777b7c44177e2ae4c13a27f103340d9cd11c86cb2426ffcad5bd964080c2aee97f03be1ca"
        "18e30a1f14e27bc11ebbd650f305269cc9fb1db08bf90bfc79b42a952b46daf810359e7bc36452684784a64952c343c5"
        "2e5124cd1f71d474d5197fefc571a92929c9084ffe1112cf5eea5192ebff330b",
    ],
}
VECTORS = [
    (b"QUUX-V01-CS02-with-expander-SHA256-128", "sha256", K1),
    (b"QUUX-V01-CS02-with-expander-SHA256-128-long-DST-" + b"1" * 208, "sha256", K2),
    (b"QUUX-V01-CS02-with-expander-SHA512-256", "sha512", K3),
]


@pytest.mark.parametrize(("tag", "digest", "vectors"), VECTORS, ids=["K.1", "K.2", "K.3"])
def test_messages_expand_as_the_rfc_prints(
    tag: bytes, digest: str, vectors: dict[int, list[str]]
) -> None:
    for size, expected in vectors.items():
        expanded = expand_message_xmd(MESSAGES[: len(expected)], tag, size, digest)
        assert [uniform.hex() for uniform in expanded] == expected


def test_a_tag_of_255_bytes_stands_as_it_is_and_one_more_is_hashed() -> None:
    long, longer = b"t" * 255, b"t" * 256
    assert expand_message_xmd([b"v"], long, 64) != expand_message_xmd([b"v"], longer, 64)
    short = sha512(b"H2C-OVERSIZE-DST-" + longer).digest()
    assert expand_message_xmd([b"v"], longer, 64) == expand_message_xmd([b"v"], short, 64)


def test_no_tag_is_refused() -> None:
    with pytest.raises(StudyError, match="at least 1 byte"):
        expand_message_xmd([b"v"], b"", 64)


@pytest.mark.parametrize("size", [0, -1, 255 * 64 + 1])
def test_lengths_beyond_the_rfc_are_refused(size: int) -> None:
    with pytest.raises(StudyError, match="1 to 16320 bytes of sha512"):
        expand_message_xmd([b"v"], b"tag", size)
    assert len(expand_message_xmd([b"v"], b"tag", 255 * 64)[0]) == 255 * 64
