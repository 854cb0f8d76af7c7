"""The families of methods that a study can name."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tacit.core.registry import FAMILIES, Registered


def families() -> dict[str, type[Registered]]:
    """Every family by name: those of a study's settings in their order, then the others in that of the alphabet."""
    from tacit.study.settings import SETTING_FAMILIES

    for module in _founders():
        importlib.import_module(module)
    ours = {name: base for name, base in FAMILIES.items() if base.__module__.startswith("tacit.")}
    order = [base.family for base in SETTING_FAMILIES.values()]
    return {name: ours[name] for name in sorted(ours, key=lambda name: (_place(name, order), name))}


def _place(name: str, order: list[str]) -> int:
    return order.index(name) if name in order else len(order)


def _founders() -> list[str]:
    """The modules that define a family, by their text: importing all of them could pull in optional packages."""
    import tacit

    found = pkgutil.walk_packages(tacit.__path__, "tacit.", onerror=lambda _: None)
    files = {module.name: _file(module) for module in found}
    return sorted(
        name
        for name, file in files.items()
        if file.exists() and ', family="' in file.read_text("utf-8")
    )


def _file(module: pkgutil.ModuleInfo) -> Path:
    place = Path(getattr(module.module_finder, "path", ""), *module.name.split(".")[-1:])
    return place / "__init__.py" if module.ispkg else place.with_suffix(".py")
