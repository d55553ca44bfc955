"""The catalogue and the reader of configurations against the reference table, to the unit."""

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
PAIRS = [(slug, known.id) for slug in SLUGS for known in SPECS[slug].ids if known.id in ROWS]


def figures(spec: models.ModelSpec) -> tuple[int, int, int, int]:
    counted = count_parameters(spec)
    return counted.total, counted.active, counted.embedding, cache_layout(spec, number_format("bf16")).bytes_per_token


def expected(hf_id: str) -> tuple[int, int, int, int]:
    row = ROWS[hf_id]
    names = ("total_params", "active_params", "embedding_params", "kv_bytes_per_token_bf16")
    return tuple(int(row[name]) for name in names)


def test_every_entry_is_compared_with_the_reference() -> None:
    assert {slug for slug, _ in PAIRS} == set(SLUGS)


@pytest.mark.parametrize(("slug", "hf_id"), PAIRS)
def test_catalogue_equals_the_reference_to_the_unit(slug: str, hf_id: str) -> None:
    assert figures(SPECS[slug]) == expected(hf_id)


@pytest.mark.parametrize(("slug", "hf_id"), PAIRS)
def test_configuration_file_equals_the_reference_to_the_unit(slug: str, hf_id: str) -> None:
    path = reference.config_path(hf_id)
    assert figures(models.load(str(path))) == expected(hf_id)


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
