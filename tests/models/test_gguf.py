"""GGUF files: what good ones say, in either byte order and of all types; paths, folders and split models."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from gguf_models import (
    BLOCK,
    GOOD,
    HIDDEN,
    KEYS,
    LAYERS,
    SIZE,
    TENSORS,
    VOCAB,
    assert_exact,
    assert_same_shape,
    from_config,
    model,
    read,
)
from weight_files import write, write_gguf

from roofplan import models
from roofplan.engines import ggml
from roofplan.errors import SpecError
from roofplan.models.gguf import Array, read_gguf, read_header

# ------------------------------------------------------------------------------------------------ good files


@pytest.mark.parametrize(("version", "order", "alignment"), list(itertools.product((2, 3), "<>", (8, 32, 64, 4096))))
def test_a_llama_in_all_layouts(tmp_path: Path, version: int, order: str, alignment: int) -> None:
    keys = KEYS if alignment == 32 else {**KEYS, "general.alignment": alignment}
    spec = read(tmp_path, keys, TENSORS, version=version, order=order, alignment=alignment)
    wanted = from_config(model_type="llama", num_attention_heads=4, num_key_value_heads=2, intermediate_size=512)
    assert_same_shape(spec, wanted)
    assert_exact(spec, TENSORS)
    assert (spec.name, spec.title, spec.ids, " ".join(spec.assumed)) == ("a-llama", "A llama", (), "")
    assert [(source.kind, source.source) for source in spec.sources] == [("user", "model.gguf")]
    assert {part.kind: part.types for part in spec.checkpoint} == {
        **dict.fromkeys(("attention", "mlp", "embedding", "head"), "Q4_K"),
        "norm": "F32",
    }


def test_metadata_of_every_type(tmp_path: Path) -> None:
    extra = {
        "flag": True,
        "f": 0.5,
        "big": 2**40,
        "t": "text",
        "flags": [True, False],
        "ints": [1, -2],
        "words": ["a", "", "b"],
    }
    header = read_header(write_gguf(tmp_path / "m.gguf", extra, []))
    assert header.metadata == {
        **{key: value for key, value in extra.items() if not isinstance(value, list)},
        "flags": Array(2, (True, False)),
        "ints": Array(2, (1, -2)),
        "words": Array(3),
    }
    assert header.tensors == ()


@pytest.mark.parametrize("type_name", sorted(ggml.types_by_name()))
def test_bytes_of_every_tensor_type(tmp_path: Path, type_name: str) -> None:
    kind = ggml.types_by_name()[type_name]
    path = write_gguf(tmp_path / "m.gguf", {}, [("t", (kind.elements * 3, 5), type_name)])
    (tensor,) = read_header(path).tensors
    assert (tensor.bytes, tensor.parameters, tensor.type.name) == (kind.bytes * 15, kind.elements * 15, type_name)


def test_bits_of_the_types_that_people_know() -> None:  # formulas F4.1
    bits = {"Q4_0": 4.5, "Q5_1": 6, "Q8_0": 8.5, "Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q6_K": 6.5625}
    bits |= {
        "IQ2_XXS": 2.0625,
        "IQ4_XS": 4.25,
        "TQ1_0": 1.6875,
        "MXFP4": 4.25,
        "NVFP4": 4.5,
        "BF16": 16,
        "IQ1_S": 1.5625,
    }
    for name, wanted in bits.items():
        assert ggml.types_by_name()[name].bytes * 8 / ggml.types_by_name()[name].elements == wanted


def test_types_are_named_by_their_bytes(tmp_path: Path) -> None:
    mixed = [(name, sides, "Q6_K" if "attn_v" in name else kind) for name, sides, kind in TENSORS]
    spec = read(tmp_path, KEYS, mixed)
    assert next(part.types for part in spec.checkpoint if part.kind == "attention") == "Q4_K, Q6_K"


@pytest.mark.parametrize(
    ("type_name", "weights"), [("F16", "fp16"), ("BF16", "bf16"), ("F32", "fp32"), ("Q8_0", "bf16")]
)
def test_a_plain_format_is_named(tmp_path: Path, type_name: str, weights: str) -> None:
    assert model(tmp_path, KEYS, [BLOCK] * LAYERS, type_name=type_name).weights == weights


def test_a_tied_head_is_stored_once(tmp_path: Path) -> None:
    assert model(tmp_path, KEYS, [BLOCK] * LAYERS, tied=True).tied_embeddings


def test_projectors_rotary_factors_and_unknown_tensors_have_a_class(tmp_path: Path) -> None:
    extra = [("v.patch_embd.weight", (256, 4), "F16"), ("rope_freqs.weight", (32,), "F32")]
    extra += [
        ("per_layer_token_embd.weight", (512, VOCAB), "Q8_0"),
        ("per_layer_model_proj.weight", (HIDDEN, 512), "F16"),
    ]
    spec = read(tmp_path, KEYS, TENSORS + extra)
    assert {part.kind for part in spec.checkpoint} > {"vision", "buffer", "other"}
    assert [(other.count, other.read_per_step) for other in spec.other_parameters] == [
        (512 * VOCAB, False),
        (512 * 256, True),
    ]
    assert_exact(
        dataclasses.replace(spec, checkpoint=tuple(p for p in spec.checkpoint if p.kind not in {"vision", "buffer"})),
        [
            *TENSORS,
            *extra[2:],
        ],
    )


def test_the_table_outranks_what_is_said_of_the_vocabulary(tmp_path: Path) -> None:
    keys = KEYS | {"llama.vocab_size": 900, "tokenizer.ggml.tokens": ["a"] * 900}
    spec = model(tmp_path, keys, [BLOCK] * LAYERS)
    assert spec.vocab_size == VOCAB
    assert "vocab_size is 900" in " ".join(spec.assumed)


def test_names(tmp_path: Path) -> None:
    keys = {key: value for key, value in KEYS.items() if key != "general.name"}
    assert read_gguf(write_gguf(tmp_path / "My Model.Q4_K_M.gguf", keys, TENSORS)).name == "my-model.q4_k_m"
    assert read(tmp_path, keys | {"general.basename": "Base \x1b[31m"}, TENSORS).name == "base-x1b-31m"


# ------------------------------------------------------------------------------------------------ through load


def test_a_path_a_folder_and_a_file_without_a_name_of_its_own(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", KEYS, TENSORS)
    blob = write(tmp_path / "sha256-0123", GOOD, SIZE)
    write(tmp_path / "mmproj-m.gguf", b"not looked at")
    assert models.load(str(path)).layers == models.load(str(tmp_path)).layers == models.load(str(blob)).layers


def test_a_folder_with_several_models(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_gguf(tmp_path / f"{name}.gguf", KEYS, TENSORS)
    with pytest.raises(SpecError, match=r"folder: got 2 models \(a.gguf, b.gguf\), want the path of one"):
        models.load(str(tmp_path))


def split_model(folder: Path, *, parts: int = 3) -> list[Path]:
    """The usual model in several files."""
    share = -(-len(TENSORS) // parts)
    split = {"split.count": parts, "split.tensors.count": len(TENSORS)}
    return [
        write_gguf(
            folder / f"m-{number + 1:05}-of-{parts:05}.gguf",
            (KEYS if number == 0 else {}) | split | {"split.no": number},
            TENSORS[number * share : (number + 1) * share],
        )
        for number in range(parts)
    ]


def test_a_split_model(tmp_path: Path) -> None:
    files = split_model(tmp_path)
    wanted = read_gguf(write(tmp_path / "whole", GOOD, SIZE))
    for name in (tmp_path, files[0], files[2]):
        spec = models.load(str(name))
        assert (spec.layers, spec.checkpoint) == (wanted.layers, wanted.checkpoint)


def test_a_split_model_that_is_not_whole(tmp_path: Path) -> None:
    files = split_model(tmp_path)
    files[1].unlink()
    with pytest.raises(SpecError, match=r"split model: got no m-00002-of-00003.gguf, want all 3 parts"):
        models.load(str(files[0]))
    files[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(SpecError, match=r"split.count: got 3 in renamed.gguf"):
        models.load(str(tmp_path / "renamed.gguf"))
    write_gguf(files[1], {"split.count": 3}, TENSORS[:3])
    (tmp_path / "renamed.gguf").rename(files[0])
    with pytest.raises(SpecError, match=r"split.tensors.count: got"):
        models.load(str(files[0]))
