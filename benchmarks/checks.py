"""How long checks take: one file, as a ratio to a process that imports what every such tool imports, and a folder of a thousand.

Whole processes run in turn, so that the machine's state is the same for all; medians of 20 for one file. Targets: one file at most 2.0
times the baseline of ``startup.py``, a thousand manifests at most 10 s on one core. The manifests are written anew: of each ten, nine
describe one of a hundred different services and one something else, as in the repositories of platform teams.
Run: ``python benchmarks/checks.py``; exit code 1 when a target is missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from startup import BASELINE, ENVIRONMENT, ROUNDS, SCRIPT

FILES = 1_000
SERVICES = 100
LONGEST_S = 10.0
MOST_RATIO = 2.0
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-32B",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "Qwen/Qwen2.5-7B-Instruct",
)
OWN = """\
schema: roofplan/deployment/v1
model: llama-3.1-8b
hardware: h100-sxm
engine: vllm@0.19
prompt: 2048
output: 256
concurrency: 16
limits: {fits: true, ttft: 1 s, tpot: 50 ms}
"""
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: service-{number}
  labels: {{app: service-{number}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: service-{number}}}}}
  template:
    metadata: {{labels: {{app: service-{number}}}}}
    spec:
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.19.0
          args:
            - --model
            - {model}
            - --max-model-len
            - "{length}"
            - --max-num-seqs
            - "{sequences}"
            - --gpu-memory-utilization
            - "0.90"
          ports: [{{containerPort: 8000}}]
          resources: {{limits: {{nvidia.com/gpu: 1}}}}
          volumeMounts: [{{mountPath: /dev/shm, name: shm}}]
      volumes:
        - name: shm
          emptyDir: {{medium: Memory, sizeLimit: 8Gi}}
"""
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings-{number}}}\ndata: {{level: info}}\n"


def write(folder: Path) -> None:
    """Write the manifests."""
    for number in range(FILES):
        kind = number % SERVICES
        text = MANIFEST.format(
            number=number, model=MODELS[kind % len(MODELS)], length=4096 + 256 * kind, sequences=32 + kind // 2
        )
        (folder / f"service-{number}.yaml").write_text(OTHER.format(number=number) if number % 10 == 9 else text)


def seconds(command: list[str]) -> float:
    """Run one process and time it; findings are no failure."""
    start = time.perf_counter()
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    if done.returncode not in {0, 1}:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return time.perf_counter() - start


def main() -> int:
    """Print the medians, their ratio, and the time of the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, own = Path(scratch, "manifests"), Path(scratch, "own.yaml")
        folder.mkdir()
        write(folder)
        own.write_text(OWN)
        processes = {
            "baseline": [sys.executable, "-c", BASELINE],
            "roofplan check, own file": [str(SCRIPT), "check", str(own)],
            "roofplan check, manifest": [str(SCRIPT), "check", str(folder / "service-0.yaml")],
        }
        times: dict[str, list[float]] = {name: [] for name in processes}
        for command in processes.values():
            seconds(command)  # fill the file cache and the byte code
        for _ in range(ROUNDS):
            for name, command in processes.items():
                times[name].append(seconds(command))
        whole = min(seconds([str(SCRIPT), "check", str(folder)]) for _ in range(2))
    baseline = statistics.median(times.pop("baseline"))
    print(f"baseline: {baseline * 1e3:.0f} ms (median of {ROUNDS})")
    missed = whole > LONGEST_S
    for name, taken in times.items():
        ratio = statistics.median(taken) / baseline
        missed |= ratio > MOST_RATIO
        late = " MISSED" if ratio > MOST_RATIO else ""
        print(f"{name}: {statistics.median(taken) * 1e3:.0f} ms, ratio {ratio:.2f}, target {MOST_RATIO:.1f}{late}")
    late = " MISSED" if whole > LONGEST_S else ""
    print(
        f"{FILES:,} manifests: {whole:.1f} s, {whole / baseline:.0f} times the baseline, target {LONGEST_S:.0f} s{late}"
    )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
