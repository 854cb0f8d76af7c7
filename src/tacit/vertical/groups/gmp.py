"""Large integers by the package gmpy2."""

from __future__ import annotations

from typing import Any

from tacit.core.errors import MissingDependencyError


def gmp(group: str) -> Any:
    """The package, which that group needs."""
    try:
        import gmpy2
    except ImportError:
        raise MissingDependencyError(
            f'{group} needs gmpy2; run: pip install "tacit[psi]"'
        ) from None
    return gmpy2
