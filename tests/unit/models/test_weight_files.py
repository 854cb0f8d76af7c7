from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tacit.core.errors import DataError, MissingDependencyError
from tacit.models import weight_files


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_model_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    state = net().state_dict()
    weight_files.write_state(tmp_path / name, state)
    again = weight_files.read_state(tmp_path / name)
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], state[key]) for key in state)


def test_layers_of_safetensors_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    state = {f"fc{k}.weight": torch.zeros(1, 1) for k in (10, 2, 1)}
    weight_files.write_state(tmp_path / "a.safetensors", state)
    names = list(weight_files.read_state(tmp_path / "a.safetensors"))
    assert names == ["fc1.weight", "fc2.weight", "fc10.weight"]


def test_the_model_of_a_training_checkpoint_is_found(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": net().state_dict()}, tmp_path / "a.pt")
    assert "0.weight" in weight_files.read_state(tmp_path / "a.pt")


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("sprung"),)  # type: ignore[return-value]


def test_code_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"0.weight": Trap()}, tmp_path / "a.pt")
    with pytest.raises(DataError, match="could run code here"):
        weight_files.read_state(tmp_path / "a.pt")
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pt", b"", "holds no plain tensors"),
        ("a.pt", b"weights?", "holds no plain tensors"),
        ("a.safetensors", b"weights?", "not a safetensors file"),
        ("b.pt", None, "there is no such file"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        weight_files.read_state(tmp_path / name)


def test_a_file_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    weight_files.write_state(tmp_path / "a.pt", net().state_dict())
    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(PermissionError, match="Permission denied"):
        weight_files.read_state(tmp_path / "a.pt")


def test_a_folder_that_may_not_be_written_is_told_by_the_files_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / ".a.pt.x1y2"))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(PermissionError) as caught:
        weight_files.write_state(tmp_path / "a.pt", net().state_dict())
    assert caught.value.filename == str(tmp_path / "a.pt")


def test_what_holds_no_tensors_is_refused(tmp_path: Path) -> None:
    for content in ({}, {"a": 1}, {"state_dict": {"a": 1}}):
        torch.save(content, tmp_path / "a.pt")
        with pytest.raises(DataError, match="expected a model's tensors by name"):
            weight_files.read_state(tmp_path / "a.pt")


def test_without_the_package_safetensors_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "tacit\[safetensors\]"'):
        weight_files.write_state(tmp_path / "a.safetensors", net().state_dict())
