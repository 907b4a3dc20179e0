"""What ``torch.save`` wrote: a tensor, a dict of tensors, or a pair (logits, labels).

Loaded with ``weights_only``, which makes tensors and plain containers and runs nothing else.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, require
from monocal.io.sources import NamedArrays, check_magic, reading

_OLDEST = (2, 6)  # in older versions of torch a file could get around weights_only


def open_tensors(path: Path) -> NamedArrays:
    """Tensors under names; anything else that the file asks for is refused before it could run."""
    what = "a file of tensors"
    torch = require("torch", "torch")
    check_magic(path, what)
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if version < _OLDEST:
        raise FileError(
            f"{path} is opened with torch {'.'.join(map(str, _OLDEST))} or later only, and this is {torch.__version__}, in which "
            "a file could run code: upgrade torch, or save the arrays with numpy.savez."
        )
    with reading(path, what):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as refusal:
            raise FileError(
                f"{path} was refused and nothing in it was run: it holds more than tensors in a dict, a tuple or a list, or is "
                "damaged; save such with torch.save."
            ) from refusal
        arrays = {name: _array(torch, one) for name, one in _by_name(torch, content, path).items()}
    return NamedArrays(path, tuple(arrays), lambda wanted: [arrays[name] for name in wanted])


def _by_name(torch: Any, content: Any, path: Path) -> dict[str, Any]:
    def usable(one: Any) -> bool:
        words = isinstance(one, list | tuple) and bool(one) and all(isinstance(word, str) for word in one)
        return words or (isinstance(one, torch.Tensor) and one.layout is torch.strided)

    if isinstance(content, dict):
        found = {name: one for name, one in content.items() if isinstance(name, str) and usable(one)}
        if found:
            return found
    elif isinstance(content, torch.Tensor) and usable(content):
        return {path.stem: content}
    elif isinstance(content, tuple | list) and len(content) == 2 and all(map(usable, content)):
        return {"values": content[0], "labels": content[1]}
    raise FileError(
        f"{path} holds a {type(content).__name__} without tensors by name: save {{'logits': ..., 'labels': ...}} with torch.save."
    )


def _array(torch: Any, given: Any) -> np.ndarray:
    if isinstance(given, list | tuple):
        return np.array(given, dtype=str)
    if given.is_floating_point() and given.dtype not in (torch.float16, torch.float32, torch.float64):
        given = given.float()  # of types that NumPy lacks, without loss
    array: np.ndarray = given.detach().resolve_conj().resolve_neg().numpy()
    return array
