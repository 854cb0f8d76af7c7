"""The options of `tacit.psi`, defined once.

`import tacit` loads this module, so it imports what its types need for type checkers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from tacit.channel.consortium import Consortium
    from tacit.channel.passphrases import Passphrase
    from tacit.core.events import Listeners
    from tacit.vertical.identifiers import Spelling

    # A table, the path of a CSV or parquet file, or the identifiers themselves.
    PartyData: TypeAlias = pd.DataFrame | str | Path | pd.Series[Any] | NDArray[Any] | Sequence[Any]


class PsiOptions(TypedDict, total=False):
    """What each one means is said in `tacit.psi`."""

    # the same for all parties
    learns: str
    size_only: bool
    column: str | None
    group: str
    spelling: Spelling | Mapping[str, str] | None
    # each party's own
    consortium: str | Path | Consortium | None
    others: Sequence[str]
    listen: str | None
    connect: str | None
    proxy: str | None
    passphrase: Passphrase
    most: int | None
    log: str | Path | None
    patience: float
    threads: int | None
    on_event: Listeners | None


PSI_DEFAULTS: PsiOptions = {
    "learns": "all",
    "size_only": False,
    "column": None,
    "group": "x25519",
    "spelling": None,
    "consortium": None,
    "others": (),
    "listen": None,
    "connect": None,
    "proxy": None,
    "passphrase": None,
    "most": None,
    "log": None,
    "patience": 600.0,
    "threads": None,
    "on_event": None,
}
