"""Kubernetes manifests: what of a pod becomes part of a service, each with its place, and what is passed over."""

from __future__ import annotations

from textwrap import dedent, indent

import manifests
import pytest
from manifests import at, line_of, problem, reading, readings, said, service

from roofplan.checks.pods import UNBOUNDED

BY = "kubernetes"
GIB = 2**30


def deployment(pod: str, head: str = "replicas: 3") -> str:
    """A Deployment around the spec of a pod."""
    top = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llama}\nspec:\n"
    return f"{top}  {head}\n  template:\n    spec:\n" + indent(dedent(pod), " " * 6)


ARGS = """\
nodeSelector:
  nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
containers:
  - name: vllm
    image: vllm/vllm-openai:v0.10.1
    args: [--model, meta-llama/Llama-3.1-70B-Instruct, --tensor-parallel-size, "4", --max-model-len=32k]
    resources:
      limits:
        nvidia.com/gpu: "4"
        memory: 200Gi
"""
FULL = deployment(ARGS)


def test_a_deployment_gives_its_command_devices_and_copies() -> None:
    one = service(FULL, BY)
    assert (one.kind, one.name, one.engine.value) == ("kubernetes", "llama", "vllm@0.10.1")
    wanted = {
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "tp": 4,
        "max_model_len": 32_000,
        "hardware": "h100-sxm5-80gb",
    }
    assert said(one) == wanted
    pod = one.pod
    assert (pod.gpus and pod.gpus.value, pod.replicas and pod.replicas.value, pod.shm_bytes) == (4, 3, None)
    assert pod.contained
    assert not pod.host_ipc


def test_every_value_has_its_place() -> None:
    one = service(FULL, BY)
    assert one.options["model"].place == at(FULL, "--model")
    assert one.options["tp"].place == at(FULL, "--tensor-parallel-size")
    assert one.options["max_model_len"].place == at(FULL, "--max-model-len")
    assert one.options["hardware"].place == at(FULL, "NVIDIA-H100")
    assert one.pod.gpus is not None
    assert one.pod.gpus.place == at(FULL, '"4"\n')
    assert one.pod.replicas is not None
    assert one.pod.replicas.place == at(FULL, "3")
    assert one.place == at(FULL, "--model")  # where its command begins


SHELL = deployment(
    """\
    containers:
      - name: main
        image: vllm/vllm-openai:v0.9.2
        command: ["/bin/sh", "-c"]
        args:
          - |
            set -e
            exec vllm serve $(MODEL) \\
              --tensor-parallel-size $(TP) --max-model-len 16K \\
              --max-num-seqs 64 --api-key $(API_KEY)
        env:
          - {name: ORG, value: Qwen}
          - {name: MODEL, value: $(ORG)/Qwen3-32B}
          - {name: TP, value: "2"}
          - {name: API_KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}
    """
)


def test_a_shell_command_is_read_with_the_variables_of_the_container() -> None:
    one = service(SHELL, BY)
    assert said(one) == {"model": "Qwen/Qwen3-32B", "tp": 2, "max_model_len": 16_384, "max_num_seqs": 64}


def test_words_of_a_block_have_the_lines_that_they_stand_in() -> None:
    options = service(SHELL, BY).options
    lines = {name: options[name].place.line for name in options}
    block = line_of(SHELL, "exec vllm")
    assert lines == {"model": block, "tp": block + 1, "max_model_len": block + 1, "max_num_seqs": block + 2}
    assert options["max_num_seqs"].place == at(SHELL, "--max-num-seqs")


def test_a_dollar_that_is_escaped_is_none_of_kubernetes() -> None:
    text = FULL.replace("meta-llama/Llama-3.1-70B-Instruct", "$$(MODEL)")
    assert said(service(text, BY))["model"] == "$(MODEL)"


@pytest.mark.parametrize(
    ("kind", "head", "path", "replicas"),
    [
        ("StatefulSet", "apps/v1", "spec: {replicas: 2, template: {spec: POD}}", 2),
        ("ReplicaSet", "apps/v1", "spec: {replicas: 2, template: {spec: POD}}", 2),
        ("DaemonSet", "apps/v1", "spec: {template: {spec: POD}}", None),
        ("Job", "batch/v1", "spec: {parallelism: 2, template: {spec: POD}}", 2),
        ("CronJob", "batch/v1", "spec: {jobTemplate: {spec: {template: {spec: POD}}}}", None),
        ("Pod", "v1", "spec: POD", None),
        ("Rollout", "argoproj.io/v1alpha1", "spec: {replicas: 2, template: {spec: POD}}", 2),
        (
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            "spec: {replicatedJobs: [{name: a, template: {spec: {template: {spec: POD}}}}]}",
            None,
        ),
    ],
)
def test_whatever_has_pods_is_read(kind: str, head: str, path: str, replicas: int | None) -> None:
    pod = "{containers: [{name: a, image: 'vllm/vllm-openai:v0.9.0', args: [--model, Qwen/Qwen3-8B]}]}"
    one = service(f"apiVersion: {head}\nkind: {kind}\nmetadata: {{name: x}}\n{path.replace('POD', pod)}\n", BY)
    assert said(one) == {"model": "Qwen/Qwen3-8B"}
    assert (one.pod.replicas and one.pod.replicas.value) == replicas


def test_several_engines_of_a_pod_have_their_containers_names() -> None:
    pod = """\
    containers:
      - {name: chat, image: "vllm/vllm-openai:v0.9.0", args: [--model, Qwen/Qwen3-8B]}
      - {name: proxy, image: "envoyproxy/envoy:v1.30", args: [--config, x]}
      - {name: embed, image: "vllm/vllm-openai:v0.9.0", args: [--model, BAAI/bge-m3]}
    """
    found = reading(deployment(pod), BY)
    assert [one.name for one in found.services] == ["llama/chat", "llama/embed"]


LWS = """\
    apiVersion: leaderworkerset.x-k8s.io/v1
    kind: LeaderWorkerSet
    metadata: {name: big}
    spec:
      replicas: 2
      leaderWorkerTemplate:
        size: 4
        leaderTemplate:
          spec:
            containers:
              - name: leader
                image: vllm/vllm-openai:v0.9.0
                command: [sh, -c]
                args: ["vllm serve meta-llama/Llama-3.1-405B-Instruct -tp 8 --pipeline_parallel_size $(LWS_GROUP_SIZE)"]
                resources: {limits: {nvidia.com/gpu: 8}}
        workerTemplate:
          spec:
            containers:
              - {name: worker, image: "vllm/vllm-openai:v0.9.0", command: [sh, -c], args: ["ray start --block"]}
    """


def test_the_leader_of_a_group_serves_on_all_its_pods() -> None:
    one = service(LWS, BY)
    assert said(one) == {"model": "meta-llama/Llama-3.1-405B-Instruct", "tp": 8, "pp": 4}
    assert one.pod.pods is not None
    assert (one.pod.pods.value, one.pod.pods.place) == (4, at(LWS, "4\n"))
    assert one.pod.replicas is not None
    assert one.pod.replicas.value == 2


def test_a_group_without_a_leader_is_its_workers() -> None:
    text = LWS.replace("leaderTemplate", "ignored").replace("ray start --block", "vllm serve Qwen/Qwen3-32B")
    assert said(service(text, BY)) == {"model": "Qwen/Qwen3-32B"}


def test_a_list_holds_objects() -> None:
    inner = indent(FULL, "    ").replace("    apiVersion", "  - apiVersion", 1)
    text = (
        f"apiVersion: v1\nkind: List\nitems:\n{inner}  - {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}\n"
    )
    found = reading(text, BY)
    assert [one.name for one in found.services] == ["llama"]
    assert dict(found.skipped) == {"ConfigMap": 1}


# ------------------------------------------------------------------------------------------------ devices


def affinity(*terms: str) -> str:
    """A pod whose nodes must have some labels."""
    return deployment(
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["
        + ", ".join(f"{{matchExpressions: [{term}]}}" for term in terms)
        + "]}}}\n"
        + ARGS.partition("\n")[2].partition("\n")[2]
    )


P5 = "{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}"
P4 = "{key: node.kubernetes.io/instance-type, operator: In, values: [p4d.24xlarge]}"


def test_required_affinity_chooses_the_device() -> None:
    one = service(affinity(P5), BY)
    assert one.options["hardware"].value == "h100-sxm5-80gb"
    assert one.options["hardware"].text == "node.kubernetes.io/instance-type: p5.48xlarge"
    assert one.pod.node_gpus == 8


def test_terms_that_differ_choose_none() -> None:
    assert "hardware" not in service(affinity(P5, P4), BY).options
    assert "hardware" not in service(affinity(P5, "{key: a, operator: Exists}"), BY).options
    assert "hardware" not in service(affinity(P5.replace("In", "NotIn")), BY).options


def test_a_preference_or_a_toleration_chooses_nothing() -> None:
    prefer = affinity(P5).replace("requiredDuringScheduling", "preferredDuringScheduling")
    assert "hardware" not in service(prefer, BY).options
    pod = ARGS.replace("nodeSelector:\n  nvidia.com/gpu.product:", "tolerations:\n  - value:")
    assert "hardware" not in service(deployment(pod), BY).options


def test_an_unknown_product_is_said() -> None:
    one = service(FULL.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA-X900"), BY)
    assert one.pod.hardware is None
    assert one.pod.unknown_hardware is not None
    assert one.pod.unknown_hardware.value == "NVIDIA-X900"
    assert one.pod.unknown_hardware.place == at(FULL, "NVIDIA-H100")


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/xe"]
)
def test_resources_count_devices(resource: str) -> None:
    one = service(FULL.replace("nvidia.com/gpu:", f"{resource}:"), BY)
    assert one.pod.gpus is not None
    assert (one.pod.gpus.value, one.pod.gpus.text) == (4, f"{resource}: 4")


def test_a_slice_is_no_device_of_the_catalogue() -> None:
    one = service(FULL.replace("nvidia.com/gpu:", "nvidia.com/mig-3g.40gb:"), BY)
    assert one.pod.hardware is None
    assert one.pod.unknown_hardware is not None
    assert one.pod.unknown_hardware.value == "nvidia.com/mig-3g.40gb"


def test_requests_count_where_there_are_no_limits_and_nothing_is_nothing() -> None:
    assert service(FULL.replace("limits:", "requests:"), BY).pod.gpus is not None
    assert service(FULL.replace("nvidia.com/gpu:", "ephemeral-storage:"), BY).pod.gpus is None


# ------------------------------------------------------------------------------------------------ shared memory


def with_shm(volume: str) -> str:
    """A pod with a volume at /dev/shm."""
    return deployment(
        ARGS + "    volumeMounts: [{name: shm, mountPath: /dev/shm}]\nvolumes:\n  - name: shm\n" + f"    {volume}\n"
    )


@pytest.mark.parametrize(
    ("volume", "size"),
    [
        ("emptyDir: {medium: Memory, sizeLimit: 16Gi}", 16 * GIB),
        ("emptyDir: {medium: Memory, sizeLimit: 2G}", 2_000_000_000),
        ("emptyDir: {medium: Memory, sizeLimit: 1e9}", 1_000_000_000),
        ("emptyDir: {medium: Memory, sizeLimit: 1073741824}", GIB),
        ("emptyDir: {medium: Memory}", 200 * GIB),  # bounded by the memory of the container
        ("emptyDir: {}", UNBOUNDED),
    ],
)
def test_a_volume_at_dev_shm_has_a_size(volume: str, size: int) -> None:
    one = service(with_shm(volume), BY)
    assert one.pod.shm_bytes is not None
    assert one.pod.shm_bytes.value == size
    assert not one.pod.host_ipc


def test_the_hosts_memory_is_the_hosts() -> None:
    assert service(with_shm("hostPath: {path: /dev/shm}"), BY).pod.host_ipc
    assert service(deployment("hostIPC: true\n" + ARGS), BY).pod.host_ipc


def test_a_volume_elsewhere_is_none() -> None:
    text = with_shm("emptyDir: {medium: Memory, sizeLimit: 16Gi}").replace("/dev/shm", "/cache")
    assert service(text, BY).pod.shm_bytes is None


# ------------------------------------------------------------------------------------------------ what is passed over, and faults


def test_other_objects_are_counted() -> None:
    other = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\n"
    foreign = "apiVersion: example.com/v1\nkind: Widget\nspec: {containers: 5}\n---\n"
    nginx = deployment("containers: [{name: a, image: nginx}]")
    found = [dict(one.skipped) for _, one in readings(other + foreign + nginx)]
    assert found == [{"Service": 1}, {"Widget": 1}, {"Deployment": 1}]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: apps/v1\nkind: Deployment\n",
        "apiVersion: apps/v1\nkind: Deployment\nspec: 3\n",
        "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: {a: 1}}}}\n",
        "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: [null, 3, {image: [a]}]}}}\n",
        "apiVersion: v1\nkind: List\nitems: [3, null, [a]]\n",
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec: {leaderWorkerTemplate: [1]}\n",
    ],
)
def test_shapes_that_nobody_wants_are_passed_over(text: str) -> None:
    found = reading(text, BY)
    assert (found.services, found.problems) == ((), ())
    assert sum(found.skipped.values()) >= 1


@pytest.mark.parametrize(
    ("old", "new", "part", "what"),
    [
        ("replicas: 3", "replicas: three", "three", "replicas: got 'three', want a whole number"),
        ('gpu: "4"', "gpu: 0.5", "0.5", "nvidia.com/gpu: got 0.5, want a whole number"),
        ('gpu: "4"', "gpu: [4]", "[4]", "nvidia.com/gpu: got a list, want a whole number"),
        (
            "replicas: 3",
            'replicas: "{{ .Values.n }}"',
            '"{{',
            "template: got {{ .Values.n }}, want a rendered manifest",
        ),
        ("meta-llama/Llama-3.1-70B-Instruct", '"{{ .Values.model }}"', '"{{', "template: got {{ .Values.model }}"),
        ("vllm/vllm-openai:v0.10.1", '"vllm/vllm-openai:{{ .Chart.AppVersion }}"', '"vllm', "template: got {{ .Chart"),
        ('gpu: "4"', 'gpu: "{{ gpus }}"', '"{{', "template: got {{ gpus }}"),
    ],
)
def test_one_fault_is_one_problem_with_its_place(old: str, new: str, part: str, what: str) -> None:
    text = FULL.replace(old, new)
    said_of_it = problem(text, BY)
    assert said_of_it.startswith(f"{at(text, part)}: {what}"), said_of_it


def test_a_size_that_is_none_is_a_problem() -> None:
    text = with_shm("emptyDir: {medium: Memory, sizeLimit: 16 GB}")
    assert problem(text, BY).startswith(f"{at(text, '16 GB')}: sizeLimit: got '16 GB', want a quantity such as 16Gi")


def test_a_template_for_the_model_is_none_of_the_manifest() -> None:
    text = FULL.replace("--max-model-len=32k", '--chat-template, "{{ messages }}", "--chat-template={{ a }}"')
    assert "model" in service(text, BY).options


def test_faults_of_what_starts_no_engine_are_not_ours() -> None:
    found = reading(deployment('containers: [{name: a, image: nginx, args: ["{{ x }}"]}]'), BY)
    assert dict(found.skipped) == {"Deployment": 1}


def test_text_that_is_no_yaml_before_it_is_rendered_is_said_to_be_a_template() -> None:
    text = "apiVersion: v1\nkind: Pod\n{{- if .Values.x }}\nmetadata:\n  name: {{ .Release.Name }}\n{{- end }}\n"
    said_of_it = problem(text, "templates")
    assert said_of_it.startswith(
        "m.yaml:3:1: template: got {{- if .Values.x }}, want a rendered manifest (render it first"
    )
    assert manifests.readings("a: [\n") == []
