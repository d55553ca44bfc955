"""Acceptance given in five ways: the same drafter described differently gives the same rounds, and contradictions are refused."""

import pytest
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner.given_acceptance import given_acceptance

EXACT = 1e-12


def tokens(drafts: list[int], **given: object) -> list[float]:
    return [each.expected_tokens for each in given_acceptance(**given).rounds(drafts)]  # type: ignore[arg-type]


def test_one_alpha() -> None:  # F11.2
    assert tokens([4], acceptance=0.8) == approx([3.3616], rel=EXACT)
    assert tokens([1, 3], acceptance=0.5) == approx([1.5, 1.875], rel=EXACT)


def test_cumulative_rates_are_taken_as_they_are() -> None:  # F11.4, llama.cpp pull 24536
    found = given_acceptance(per_position=(0.805, 0.632, 0.483))
    assert [each.expected_tokens for each in found.rounds([1, 2, 3])] == approx([1.805, 2.437, 2.92], rel=EXACT)
    assert found.alpha is None
    assert found.most_drafts == 3


def test_mean_length_is_solved_for_alpha() -> None:  # F11.4
    found = given_acceptance(mean_length=2.92, measured_at=3)
    assert found.alpha == approx(0.7928823257110125, rel=1e-9)
    assert found.rounds([3])[0].expected_tokens == approx(2.92, rel=1e-9)


def test_accepted_per_drafted_is_not_alpha() -> None:  # F11.4: alpha 0.8 and k = 4 give 0.5904
    found = given_acceptance(accepted_per_drafted=0.5904, measured_at=4)
    assert found.alpha == approx(0.8, rel=1e-9)
    assert tokens([4, 6], accepted_per_drafted=0.5904, measured_at=4) == approx([3.3616, 3.951424], rel=1e-9)


def test_trees_grow_by_the_likeliest_node() -> (
    None
):  # F11.8: six nodes 0, 1, 2, 00, 01, 10 give 2.4, the chain of two 1.9
    ranks = [(0.6, 0.2, 0.08), (0.5, 0.2)]
    found = given_acceptance(tree=ranks)
    assert found.most_drafts == 3 + 3 * 2
    rounds = found.rounds([1, 2, 6])
    assert [each.expected_tokens for each in rounds[:2]] == approx([1.6, 1.9], rel=EXACT)
    assert (rounds[2].nodes, rounds[2].passes) == (6, 2)
    assert rounds[2].expected_tokens == approx(2.4, rel=EXACT)
    with pytest.raises(DomainError, match="chain"):
        found.rates_of(2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "got nothing, want one of --acceptance"),
        ({"acceptance": 0.8, "mean_length": 3.0, "measured_at": 4}, "got --acceptance and --mean-length"),
        ({"per_position": (0.8,), "tree": ((0.8,),)}, "got --per-position and --tree"),
        ({"acceptance": 0.8, "measured_at": 4}, "--measured-at: got 4 with --acceptance"),
        ({"mean_length": 3.0}, "want --measured-at K beside it"),
        ({"accepted_per_drafted": 0.5}, "want --measured-at K beside it"),
        ({"mean_length": 5.5, "measured_at": 4}, "--mean-length: got 5.5, want a number from 1 to 5"),
        ({"mean_length": 0.5, "measured_at": 4}, "from 1 to 5"),
        ({"acceptance": 1.5}, "--acceptance: got 1.5"),
        ({"accepted_per_drafted": 1.5, "measured_at": 4}, "--accepted-per-drafted: got 1.5"),
        ({"per_position": (0.5, 0.6)}, "cumulative rates never rise"),
        ({"per_position": ()}, "--per-position: got nothing"),
        ({"tree": ()}, "--tree: got nothing"),
        ({"tree": ((0.8, 0.4),)}, "at most 1 over the ranks"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(DomainError, match=said.replace("(", r"\(")):
        given_acceptance(**given)  # type: ignore[arg-type]


def test_more_drafts_than_anything_is_known_of() -> None:
    with pytest.raises(DomainError, match="at most 2, the positions"):
        given_acceptance(per_position=(0.8, 0.5)).rounds([3])
    with pytest.raises(DomainError, match="at most 2, the nodes"):
        given_acceptance(tree=((0.8, 0.1),)).rounds([1, 3])
