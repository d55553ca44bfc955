"""The catalogue and the reader of configurations against the reference table, to the unit."""

import re

import pytest
import reference
from shapes import number_format

from roofplan import models
from roofplan.documents import parse_yaml
from roofplan.models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention, Mlp, Moe, Recurrent
from roofplan.models.write import to_yaml
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parameters import count_parameters

ROWS = reference.rows()
SLUGS = models.CATALOGUE.slugs()
SPECS = {slug: models.load(slug) for slug in SLUGS}
SLUG_OF = {known.id: slug for slug in SLUGS for known in SPECS[slug].ids}

# Rows of the reference that roofplan does not follow, each with its cause and the difference in parameters.
EXCEPTIONS = {
    "OrionStarAI/Orion-14B-Base": 414720,  # its layer norms have biases (81 x 5120), which the reference leaves out
    "xai-org/grok-1": 786432,  # four norms a layer (model.py), of which the reference counts two
    "MiniMaxAI/MiniMax-M3": 224163072,  # index projections of 57 sparse layers and norms on queries and keys are left out there
    "nvidia/MiniMax-M3-NVFP4": 224163072 + 509615232,  # and its dense layers have the width of the experts there
    "RWKV/rwkv-5-world-3b": None,  # "not computed" there
}


def figures(spec: models.ModelSpec) -> tuple[int, int, int]:
    counted = count_parameters(spec)
    return counted.total, counted.active, cache_layout(spec, number_format("bf16")).bytes_per_token


def expected(hf_id: str) -> tuple[int, int, int]:
    row = ROWS[hf_id]
    total, active, growth = row["total_params"], row["active_params"], row["kv_bytes_per_token_bf16"]
    more = EXCEPTIONS.get(hf_id, 0)
    return int(total) + more, int(active) + more, int(growth)


COMPARED = [hf_id for hf_id in ROWS if EXCEPTIONS.get(hf_id, 0) is not None]


def test_the_exceptions_are_few_and_real() -> None:
    assert len(EXCEPTIONS) <= 5
    assert set(EXCEPTIONS) <= set(ROWS)
    assert len(ROWS) == 234
    assert ROWS["RWKV/rwkv-5-world-3b"]["total_params"] == "not computed"


@pytest.mark.parametrize("hf_id", COMPARED)
def test_catalogue_equals_the_reference_to_the_unit(hf_id: str) -> None:
    assert figures(SPECS[SLUG_OF[hf_id]]) == expected(hf_id)


@pytest.mark.parametrize("hf_id", COMPARED)
def test_configuration_file_equals_the_reference_to_the_unit(hf_id: str) -> None:
    assert figures(models.load(str(reference.config_path(hf_id)))) == expected(hf_id)


def test_every_configuration_is_read() -> None:
    assert {models.load(str(path)).ids[0].id for path in (reference.DATA / "model_configs").glob("*.json")} == set(ROWS)
    assert set(ROWS) <= set(SLUG_OF)


_CAP = re.compile(r"\(cap (\d+) B/sequence\)")
_STATE = re.compile(r"fixed (?:recurrent )?state (?:per sequence )?(\d+) B|fixed state per sequence (\d+) B")


@pytest.mark.parametrize("hf_id", [hf_id for hf_id, row in ROWS.items() if _CAP.search(row["kv_formula_note"])])
def test_windows_match_the_notes_of_the_reference(hf_id: str) -> None:
    cache, tokens = cache_layout(SPECS[SLUG_OF[hf_id]], number_format("bf16")), 2**17
    bounded = cache.bytes_per_sequence(tokens) - cache.bytes_per_token * tokens - cache.state_bytes
    assert bounded == int(_CAP.search(ROWS[hf_id]["kv_formula_note"])[1])


@pytest.mark.parametrize("hf_id", [hf_id for hf_id, row in ROWS.items() if _STATE.search(row["kv_formula_note"])])
def test_fixed_states_match_the_notes_of_the_reference(hf_id: str) -> None:
    note = _STATE.search(ROWS[hf_id]["kv_formula_note"])
    assert cache_layout(SPECS[SLUG_OF[hf_id]], number_format("bf16")).state_bytes == int(note[1] or note[2])


@pytest.mark.parametrize("slug", SLUGS)
def test_writing_and_reading_changes_nothing(slug: str) -> None:
    text = to_yaml(SPECS[slug])
    again = models.from_document(parse_yaml(text, slug))
    assert again == SPECS[slug]
    assert to_yaml(again) == text
    assert text == (models.CATALOGUE.folder / f"{slug}.yaml").read_text(encoding="utf-8")


def test_the_catalogue_covers_every_kind() -> None:
    mixers = [mixer for spec in SPECS.values() for group in spec.layers for mixer in group.attention]
    parts = [part for spec in SPECS.values() for group in spec.layers for part in group.mlp]
    assert {type(mixer) for mixer in mixers} == {
        Attention,
        LatentAttention,
        CompressedAttention,
        CrossAttention,
        Recurrent,
    }
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    assert {mixer.kind for mixer in attention} == {"full", "sliding", "chunked"}
    assert {mixer.cache for mixer in attention} == {"own", "shared"}
    assert any(mixer.num_kv_heads == 1 for mixer in attention)
    assert any(mixer.sinks for mixer in attention)
    assert any(isinstance(mixer, LatentAttention) and mixer.indexer for mixer in mixers)
    assert {part.kind for part in parts if isinstance(part, Mlp)} == {"gated", "plain"}
    moes = [part for part in parts if isinstance(part, Moe)]
    assert any(moe.shared for moe in moes)
    assert any(moe.latent_size for moe in moes)
    assert any(not moe.gated for moe in moes)
    groups = [group for spec in SPECS.values() for group in spec.layers]
    assert any(not group.attention for group in groups)
    assert any(not group.mlp for group in groups)
    assert any(spec.other_parameters for spec in SPECS.values())
    assert {part.kind for spec in SPECS.values() for part in spec.parts} >= {"vision", "mtp"}


@pytest.mark.parametrize("slug", SLUGS)
def test_every_entry_names_its_source(slug: str) -> None:
    spec = SPECS[slug]
    assert spec.sources
    assert all(source.source for source in spec.sources)
    assert all(item.source for item in (*spec.other_parameters, *spec.parts))
    assert spec.name == slug


@pytest.mark.parametrize(
    ("model_id", "weights"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "bf16"),
        ("META-LLAMA/llama-3.1-8b-instruct", "bf16"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "fp8"),
        ("Qwen/Qwen3-32B-FP8", "fp8-block128"),
        ("openai/gpt-oss-120b", "experts=mxfp4"),
        ("deepseek-ai/DeepSeek-R1", "fp8-block128"),
    ],
)
def test_an_id_implies_its_weight_format(model_id: str, weights: str) -> None:
    assert models.load(model_id).weights == weights
