"""Hypothesis without deadlines: the first example pays for imports, and machines are shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("tacit", deadline=None)
settings.load_profile("tacit")
