"""Engine profiles: every figure has evidence in the file that states it, a version states only what changed, and versions are found."""

from typing import Any

import pytest

from roofplan import engines
from roofplan.documents import Document, parse_yaml
from roofplan.engines.profile import EngineProfile, parse_version
from roofplan.engines.profiles import CATALOGUE, engine_of, from_document, load, versions_of
from roofplan.errors import SpecError, UnknownNameError

PROFILES = CATALOGUE.slugs()
SPOKEN = {"schema", "name", "title", "extends", "checked_to", "version", "sources", "notes"}  # no figures
BANDS = {"bandwidth_share", "compute_share"}  # carry their source themselves


def figures(data: Any, path: str = "") -> list[str]:
    """Keys of the figures that a file states; a list is one figure."""
    if not isinstance(data, dict):
        return [path]
    return [key for name, value in data.items() for key in figures(value, f"{path}.{name}".lstrip("."))]


def stated(slug: str) -> dict[str, Any]:
    return {key: value for key, value in CATALOGUE.read(slug).data.items() if key not in SPOKEN | BANDS}


def covered(figure: str, sources: dict[str, Any]) -> bool:
    return any(figure == key or figure.startswith(f"{key}.") for key in sources)


def unsourced(slug: str, sources: dict[str, Any]) -> list[str]:
    return [figure for figure in figures(stated(slug)) if not covered(figure, sources)]


@pytest.mark.parametrize("slug", PROFILES)
def test_every_figure_has_evidence_in_the_file_that_states_it(slug: str) -> None:
    assert unsourced(slug, CATALOGUE.read(slug).data.get("sources", {})) == []


SOURCES = [(slug, key) for slug in PROFILES for key in CATALOGUE.read(slug).data.get("sources", {})]


@pytest.mark.parametrize(("slug", "key"), SOURCES)
def test_no_source_can_be_removed_and_none_is_about_nothing(slug: str, key: str) -> None:
    own = CATALOGUE.read(slug).data["sources"]
    of_key = [figure for figure in figures(stated(slug)) if covered(figure, {key: None})]
    assert of_key, f"{key} is the source of no figure of {slug}"
    without = {other: source for other, source in own.items() if other != key}
    shadowed = any(other != key and (key.startswith(f"{other}.")) for other in own)
    assert unsourced(slug, without) or shadowed


def value_at(profile: EngineProfile, figure: str) -> Any:
    """The value of a dotted key; a sentinel where the group that it stands in is absent."""
    value: Any = profile
    for step in figure.split("."):
        if value is None:
            return "absent"
        value = getattr(value, step)
    return value


def came_together(slug: str) -> set[str]:
    """The groups whose figures were fitted together: such a fit is stated whole, what came out as before included."""
    sources = CATALOGUE.read(slug).data.get("sources", {})
    return {key for key, source in sources.items() if source["kind"] == "fitted"}


@pytest.mark.parametrize("slug", [slug for slug in PROFILES if CATALOGUE.read(slug).data.get("extends")])
def test_a_version_states_only_what_changed(slug: str) -> None:
    parent = from_document(CATALOGUE.read(CATALOGUE.read(slug).data["extends"]))
    child = from_document(CATALOGUE.read(slug))
    repeated = [figure for figure in figures(stated(slug)) if value_at(parent, figure) == value_at(child, figure)]
    assert [figure for figure in repeated if not covered(figure, dict.fromkeys(came_together(slug)))] == []
    assert set(repeated) != set(figures(stated(slug)))


@pytest.mark.parametrize("slug", PROFILES)
def test_a_profile_is_called_like_its_file(slug: str) -> None:
    assert CATALOGUE.read(slug).data["name"] == slug


@pytest.mark.parametrize("slug", PROFILES)
def test_fitted_constants_say_on_what_and_how_well(slug: str) -> None:
    for origin in load(slug).sources.values():
        assert (origin.kind == "fitted") == (origin.fit is not None)
        assert origin.fit is None or all((origin.fit.data, origin.fit.error, origin.fit.not_fitted_on))


def test_the_activation_constants_of_vllm_are_marked_as_fitted() -> None:
    assert {load(name).sources["activations"].kind for name in ("vllm@0.6", "vllm@0.17")} == {"fitted"}


# ------------------------------------------------------------------------------------------------ versions


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("vllm@0.19", "vllm@0.19"),
        ("vllm@0.19.0", "vllm@0.19"),
        ("vLLM@v0.19.1", "vllm@0.19"),
        ("vllm@0.15.1", "vllm@0.14"),  # in between: the newest that is not later
        ("vllm@0.8.5.post1", "vllm@0.8"),
        ("vllm@0.7.3", "vllm@0.6"),
        ("vllm@0.29.0", "vllm@0.28"),
        ("vllm@1.0", "vllm@0.28"),
        ("sglang@0.4.9", "sglang@0.4"),
        ("TensorRT-LLM@0.12.0", "tensorrt-llm@0.8"),
        ("llama.cpp@b4701", "llama.cpp@b1500"),
        ("llama-cpp@b6000", "llama.cpp@b5150"),
        ("vllm", "vllm@0.28"),
        ("plain", "plain"),
    ],
)
def test_a_version_is_answered_by_the_newest_profile_that_is_not_later(asked: str, found: str) -> None:
    assert load(asked).name == found


@pytest.mark.parametrize(
    ("asked", "newer"),
    [
        ("vllm@0.30", True),
        ("vllm@1.0", True),
        ("vllm@0.29.5", False),
        ("vllm@0.19", False),
        ("vllm", False),
        ("plain", False),
    ],
)
def test_a_version_newer_than_any_known_is_said_to_be(asked: str, newer: bool) -> None:
    assert load(asked).is_newer_than_known == newer


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("vlm", "did you mean vllm?"),
        ("vllm@0.3", "a version from vllm@0.6 on"),
        ("vllm@", "such as vllm@"),
        ("vllm@latest", "such as vllm@"),
        ("plain@1", "its profile has no versions"),
        (
            "",
            "got an empty name, want one of gpt-fast, llama.cpp, plain, sglang, tensorrt-llm, tensorrt-llm-triton, vllm",
        ),
        ("@0.19", "want one of gpt-fast, llama.cpp, plain"),
        (f"vllm@{'9' * 400}", "such as vllm@"),
    ],
)
def test_what_no_profile_describes_is_refused_with_what_there_is(asked: str, said: str) -> None:
    if asked.endswith("9" * 400):
        assert load(asked).is_newer_than_known  # nine digits of it are read
        return
    with pytest.raises(UnknownNameError) as refused:
        load(asked)
    assert said in str(refused.value)


def test_profiles_of_an_engine_are_listed_oldest_first() -> None:
    versions = [version for version, _ in versions_of("vllm")]
    assert versions == sorted(versions)
    assert (0, 19) in versions


def test_a_version_is_read_whatever_stands_behind_it() -> None:
    assert parse_version("0.6.5-0.6.6") == (0, 6, 5)
    assert parse_version("b4701") == (4701,)
    assert parse_version("latest") is None
    assert engine_of("vLLM@0.19") == ("vllm", "0.19")


# ------------------------------------------------------------------------------------------------ own files


def test_an_own_profile_may_extend_one_of_the_catalogue() -> None:
    own = parse_yaml(
        'schema: roofplan/engine/v1\nname: mine\nextends: "vllm@0.19"\nbudget:\n  share:\n    - {ranks: 1, share: 0.5}\n',
        "mine",
    )
    profile = from_document(own)
    assert profile.budget.share[0].share == 0.5
    assert profile.budget.within == load("vllm@0.19").budget.within


@pytest.mark.parametrize("parent", ["nobody", "mine", "3"])
def test_a_profile_extends_only_what_is_in_the_catalogue(parent: str) -> None:
    with pytest.raises(SpecError, match="extends: got"):
        from_document(Document({"schema": "roofplan/engine/v1", "name": "mine", "extends": parent}, "mine"))


@pytest.mark.parametrize("data", [None, 3, [], "text"])
def test_a_profile_is_a_mapping(data: object) -> None:
    with pytest.raises(SpecError, match="want a mapping"):
        from_document(Document(data, "mine"))


def test_a_fault_in_an_own_profile_is_placed() -> None:
    own = parse_yaml(
        "schema: roofplan/engine/v1\nname: mine\nextends: plain\nruntime:\n  - {ranks: 0, bytes: 1 GiB}\n", "mine.yaml"
    )
    with pytest.raises(SpecError, match=r"mine\.yaml:5:13: runtime\.0\.ranks"):
        from_document(own)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("budget: {share: []}", "want one entry each, and one for a single rank"),
        ("budget: {share: [{ranks: 2, share: 0.5}]}", "and one for a single rank"),
        ("budget: {share: [{ranks: 1, share: 0.5}, {ranks: 1, share: 0.6}]}", "want one entry each"),
        ("budget: {before: [weights]}", "want each part once"),
        ("runtime: [{ranks: 4, bytes: 1 GiB}]", "and one for a single rank"),
        ("runtime: []", "and one for a single rank"),
        ("batching: []", "want at least one entry"),
    ],
)
def test_a_profile_that_cannot_be_planned_with_is_refused(change: str, said: str) -> None:
    own = parse_yaml(f"schema: roofplan/engine/v1\nname: mine\nextends: plain\n{change}\n", "mine.yaml")
    with pytest.raises(SpecError, match=said) as refused:
        from_document(own)
    assert "mine.yaml" in str(refused.value)


def test_all_profiles_are_public() -> None:
    assert {engines.load(slug).name for slug in PROFILES} == set(PROFILES)
