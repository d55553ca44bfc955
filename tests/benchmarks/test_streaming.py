"""The comparison with plain C loops: that the loops do what ours do, and what is made of a ratio. No times are tested."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

FILE = Path(__file__).parents[2] / "benchmarks" / "streaming.py"
MIB = 2**20


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("streaming_benchmark", FILE)
    module = sys.modules["streaming_benchmark"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["streaming_benchmark"]


@pytest.fixture(scope="module")
def loops(benchmark, tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    return benchmark.compiled(tmp_path_factory.mktemp("loops"))


def test_loops_do_what_torch_does(loops):
    numbers = torch.arange(2**16, dtype=torch.float32) % 7
    assert loops.read_all(numbers.data_ptr(), numbers.numel()) == numbers.sum().item()
    a, b, c = (torch.arange(1000, dtype=torch.float32) + shift for shift in range(3))
    loops.triad(a.data_ptr(), b.data_ptr(), c.data_ptr(), 0.5, 1000)
    assert torch.equal(a, b + 0.5 * c)


def test_loops_have_as_many_threads_as_torch(loops):
    assert loops.threads() == torch.get_num_threads()


def test_ours_and_the_loop_move_the_same_bytes(benchmark, loops):
    pairs = benchmark.calls(loops, torch, 3 * MIB)
    assert {name: pair.bytes for name, pair in pairs.items()} == {"read": 3 * MIB, "triad": 3 * MIB}
    found = benchmark.by_turns(pairs, 0.0)
    assert all(len(rates) == benchmark.LEAST_ROUNDS for rates in found.values())
    assert all(ours > 0 and theirs > 0 for rates in found.values() for ours, theirs in rates)


@pytest.mark.parametrize(("ours", "code"), [(0.96, 0), (0.94, 1)])
def test_the_exit_code_is_that_of_the_target(benchmark, loops, monkeypatch, capsys, ours, code):
    rates = [(ours * theirs, theirs) for theirs in (1e9, 2e9, 3e9)]
    monkeypatch.setattr(benchmark, "by_turns", lambda *_: {"read": rates, "triad": rates})
    assert benchmark.main(["1", "0"]) == code
    assert f"read {ours:.3f}, target 0.95{' MISSED' if code else ''}" in capsys.readouterr().out


def test_without_a_compiler(benchmark, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="2"):
        benchmark.compiled(tmp_path)
    assert "no C compiler" in capsys.readouterr().err


def test_a_compiler_that_fails(benchmark, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SystemExit, match="2"):
        benchmark.compiled(tmp_path)
    assert "false failed" in capsys.readouterr().err
