"""The families of methods that a study can name."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tacit.core.registry import FAMILIES, Registered


def families() -> dict[str, type[Registered]]:
    """Every family by name.

    Those of a study's settings come first, in the order of the settings, then the others by name.
    """
    from tacit.study.settings import SETTING_FAMILIES

    for module in _founders():
        importlib.import_module(module)
    ours = {name: base for name, base in FAMILIES.items() if base.__module__.startswith("tacit.")}
    of_settings = [base.family for base in SETTING_FAMILIES.values()]
    first = [name for name in dict.fromkeys(of_settings) if name in ours]
    rest = sorted(ours.keys() - set(first))
    return {name: ours[name] for name in first + rest}


def _founders() -> list[str]:
    """The modules that define a family.

    They are recognised by their text: importing all modules could pull in optional packages.
    """
    import tacit

    founders = []
    for module in pkgutil.walk_packages(tacit.__path__, "tacit.", onerror=lambda _: None):
        file = _file(module)
        if file.exists() and ', family="' in file.read_text("utf-8"):
            founders.append(module.name)
    return sorted(founders)


def _file(module: pkgutil.ModuleInfo) -> Path:
    folder = getattr(module.module_finder, "path", "")
    name = module.name.rpartition(".")[2]
    if module.ispkg:
        return Path(folder, name, "__init__.py")
    return Path(folder, f"{name}.py")
