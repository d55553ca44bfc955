"""Reading attention heads: what is accepted, and what is refused in one line, above all anything that would be executed."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from roofplan.api import tensors
from roofplan.errors import RoofplanError

DRAW = np.random.default_rng(0)


def arrays(*, queries: tuple[int, ...] = (3, 8), keys: tuple[int, ...] = (5, 8)) -> dict[str, np.ndarray]:
    return {
        "queries": DRAW.standard_normal(queries),
        "keys": DRAW.standard_normal(keys),
        "values": DRAW.standard_normal(keys),
    }


def saved(folder: Path, **named: object) -> Path:
    path = folder / "heads.npz"
    np.savez(path, **named)
    return path


def test_one_head(tmp_path: Path) -> None:
    named = arrays()
    found = tensors.read_heads(saved(tmp_path, **named))
    assert len(found.arrays) == 1
    for mine, name in zip(found.arrays[0], ("queries", "keys", "values"), strict=True):
        assert (mine == named[name]).all()
    assert found.tokens == 5
    assert not found.synthetic
    assert "keys (5, 8)" in found.source


def test_compressed_and_other_number_types(tmp_path: Path) -> None:
    path = tmp_path / "heads.NPZ"
    named = {name: array.astype(kind) for (name, array), kind in zip(arrays().items(), ("f2", "f4", "i4"), strict=True)}
    with path.open("wb") as stream:
        np.savez_compressed(stream, more=np.zeros(3), **named)
    assert all(array.dtype == np.float64 for array in tensors.read_heads(path).arrays[0])


@pytest.mark.parametrize("layers", [(), (2,)])
def test_heads_of_queries_share_those_of_keys(layers: tuple[int, ...], tmp_path: Path) -> None:
    """GQA, with or without layers before the heads: query head h reads key head h // g of its layer."""
    named = arrays(queries=(*layers, 6, 3, 8), keys=(*layers, 2, 5, 8))
    found = tensors.read_heads(saved(tmp_path, **named)).arrays
    assert len(found) == 6 * (layers or (1,))[0]
    keys = named["keys"].reshape(-1, 2, 5, 8)
    queries = named["queries"].reshape(-1, 6, 3, 8)
    for place, (asked, key, _) in enumerate(found):
        layer, head = divmod(place, 6)
        assert (asked == queries[layer, head]).all()
        assert (key == keys[layer, head // 3]).all()


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "heads.json"
    path.write_text(json.dumps({"queries": [[1, 2]], "keys": [[1.5, 2], [3, 4]], "values": [[1], [2]]}))
    [(queries, keys, values)] = tensors.read_heads(str(path)).arrays
    assert queries.tolist() == [[1, 2]]
    assert keys.tolist() == [[1.5, 2], [3, 4]]
    assert values.tolist() == [[1], [2]]


class Trap:
    """An object that would leave a file behind if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(self.path),))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    objects = np.empty((5, 8), dtype=object)
    objects[:] = Trap(trap)
    path = saved(tmp_path, **{**arrays(), "keys": objects})
    with pytest.raises(RoofplanError, match=r"heads.npz: --tensors: got pickled objects, want arrays of numbers"):
        tensors.read_heads(path)
    assert not trap.exists()


def test_a_pickle_with_the_name_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "heads.npz"
    objects = np.empty(1, dtype=object)
    objects[:] = Trap(tmp_path / "sprung")
    np.save(path.open("wb"), objects)
    with pytest.raises(RoofplanError, match="no archive of plain arrays"):
        tensors.read_heads(path)
    assert not (tmp_path / "sprung").exists()


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    path = tmp_path / "heads.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("queries", "keys", "values"):
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(RoofplanError, match="no archive of plain arrays"):
        tensors.read_heads(path)


def test_arrays_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "heads.npz"
    np.savez_compressed(path, queries=np.zeros((1, 8)), keys=np.zeros((10**5, 8)), values=np.zeros((10**5, 8)))
    assert path.stat().st_size < 10**5
    monkeypatch.setattr(tensors, "LARGEST_FILE_BYTES", 10**6)
    with pytest.raises(RoofplanError, match="got larger arrays, want at most 1,000,000 bytes"):
        tensors.read_heads(path)


BAD_ARRAYS = {
    "no keys": ({"queries": [[1.0]], "values": [[1.0]]}, "no array keys"),
    "a vector": ({"queries": [1.0], "keys": [[1.0]], "values": [[1.0]]}, "queries of shape"),
    "nothing": ({"queries": [[1.0]], "keys": [[]], "values": [[]]}, "keys of shape"),
    "text": ({"queries": [["a"]], "keys": [[1.0]], "values": [[1.0]]}, "queries of type"),
    "truth": ({"queries": [[True]], "keys": [[1.0]], "values": [[1.0]]}, "queries of type bool"),
    "lengths": ({"queries": [[1.0]], "keys": [[1.0], [2.0]], "values": [[1.0]]}, "as many values as keys"),
    "widths": ({"queries": [[1.0, 2.0]], "keys": [[1.0]], "values": [[1.0]]}, "queries as wide as keys"),
    "heads": ({"queries": [[[1.0]]] * 3, "keys": [[[1.0]]] * 2, "values": [[[1.0]]] * 2}, "of queries a multiple"),
    "other heads": (
        {"queries": [[[1.0]]] * 2, "keys": [[[1.0]]] * 2, "values": [[[1.0]]]},
        "as many of keys as of values",
    ),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
@pytest.mark.parametrize("kind", ["json", "npz"])
def test_arrays_that_do_not_fit(case: str, kind: str, tmp_path: Path) -> None:
    named, said = BAD_ARRAYS[case]
    path = tmp_path / f"heads.{kind}"
    if kind == "json":
        path.write_text(json.dumps(named))
    else:
        np.savez(path, **named)
    with pytest.raises(RoofplanError) as caught:
        tensors.read_heads(path)
    assert said in str(caught.value)
    assert f"heads.{kind}: --tensors" in str(caught.value)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    for bad in (np.nan, np.inf):
        named = arrays()
        named["values"][2, 3] = bad
        with pytest.raises(RoofplanError, match="values that are not finite"):
            tensors.read_heads(saved(tmp_path, **named))
    path = tmp_path / "heads.json"
    path.write_text('{"queries": [[1]], "keys": [[NaN]], "values": [[1]]}')
    with pytest.raises(RoofplanError, match="got NaN, want finite numbers"):
        tensors.read_heads(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("heads.json", b"{", "no JSON"),
        ("heads.json", b"\xff\xfe", "no JSON"),
        ("heads.json", b"[" * 100_000, "no JSON"),
        ("heads.json", b"[1]", "no mapping"),
        (
            "heads.json",
            b'{"queries": [[1], [1, 2]], "keys": [[1]], "values": [[1]]}',
            "queries with rows of unequal lengths",
        ),
        ("heads.npz", b"PK\x03\x04 cut off", "no archive of plain arrays"),
        ("heads.npz", b"", "no archive of plain arrays"),
        ("heads.pt", b"", "want a file .npz or .json"),
        ("heads.npy", b"", "want a file .npz or .json"),
    ],
)
def test_files_that_are_none(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RoofplanError) as caught:
        tensors.read_heads(path)
    assert said in str(caught.value)


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder.npz"
    folder.mkdir()
    for path in (folder, tmp_path / "missing.json"):
        with pytest.raises(RoofplanError):
            tensors.read_heads(path)
