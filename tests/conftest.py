"""Hypothesis without deadlines: the first example pays for imports, and machines are shared. Without a GPU, Triton's
interpreter runs our kernels."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

settings.register_profile("tacit", deadline=None)
settings.load_profile("tacit")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
