"""Loading a model of a local Hugging Face folder with transformers, and what its tensors hold.

Transformers stays offline, reads safetensors only, and runs no code of the folder. In 8 and 4 bits the layers' matrices are those of
bitsandbytes (LLM.int8 and NF4), where that runs; embedding and output head stay as they are.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import specfiles
from ..errors import MeasureError, show
from .allocation import first_line, out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..models.spec import ModelSpec
    from .machine import Machine

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_SEED = 0


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How weights are held: in words, the planner's name of it, and the options of bitsandbytes."""

    title: str
    planned: str
    options: dict[str, Any]


FORMATS = {
    "stored": WeightFormat("as stored", "", {}),
    "int8": WeightFormat("8 bits (LLM.int8)", "llm-int8", {"load_in_8bit": True}),
    "nf4": WeightFormat("4 bits (NF4)", "nf4", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
}


def check_folder(path: Path) -> tuple[Path, ModelSpec]:
    """Look at a folder before anything is loaded: what it holds, and what the planner reads in it.

    Raises
    ------
    MeasureError : for a folder without configuration or safetensors, or with an adapter, whose base would have to be fetched
    RoofplanError : for a configuration or headers that the planner cannot read
    """
    from .. import models

    where, folder = str(path), path.absolute()
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing there"
        raise MeasureError("PATH", got=got, wanted="a local folder with config.json and safetensors", where=where)
    names = sorted(entry.name for entry in folder.iterdir())
    if "adapter_config.json" in names:
        raise MeasureError("PATH", got="an adapter", wanted="a whole model, since nothing is fetched", where=where)
    if "config.json" not in names:
        raise MeasureError("PATH", got="no config.json", wanted="a folder with one", where=where)
    _refuse_fetched_code(folder / "config.json", where)
    if not any(name.endswith(".safetensors") for name in names):
        other = next((name for name in names if name.endswith((".bin", ".pt", ".pth", ".gguf"))), "no weights")
        raise MeasureError("PATH", got=other, wanted="weights as safetensors", where=where)
    return folder, models.load(str(folder))


def _refuse_fetched_code(config: Path, where: str) -> None:
    """Refuse a configuration that names kernels by the address of a repository: transformers would fetch and run them."""
    left: list[Any] = [specfiles.read_document(str(config)).data]
    while left:
        value = left.pop()
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        for key, named in value.items() if isinstance(value, dict) else ():
            names = list(named.values()) if isinstance(named, dict) else [named]
            if str(key).endswith("_implementation") and any("/" in str(name) for name in names):
                wanted = "one of transformers' own, since no code is fetched"
                raise MeasureError(str(key), got=str(named), wanted=wanted, where=f"{where}/config.json")


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Keep transformers and its hub from the network and from talking, for as long as ours takes."""
    import logging
    import warnings

    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(_OFFLINE)
    loud = logging.root.manager.disable
    try:
        transformers = transformers_module()
        from huggingface_hub import constants

        was, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
        bars = transformers.utils.logging.is_progress_bar_enabled()
        try:
            logging.disable(logging.CRITICAL)
            transformers.utils.logging.disable_progress_bar()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            constants.HF_HUB_OFFLINE = was
            if bars:
                transformers.utils.logging.enable_progress_bar()
    finally:
        logging.disable(loud)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def transformers_module() -> Any:
    """The module transformers.

    Raises
    ------
    MeasureError : where it is not installed, or does not load
    """
    try:
        import transformers
    except ImportError as error:
        hint = "pip install 'roofplan[hf]'"
        if getattr(error, "name", None) not in {"transformers", None}:
            hint = f"it is installed, but does not load: {first_line(error)}"
        raise MeasureError("measure hf", got="no transformers", wanted="the extra hf", hint=hint) from error
    return transformers


@dataclass(slots=True)
class LoadedModel:
    """A model that is ready to run.

    Parameters
    ----------
    module : of torch
    format : of its weights, by its name in :data:`FORMATS`
    dtype : of activations and cache: fp32, bf16 or fp16
    is_quantised : whether the folder itself holds quantised weights
    last_only : whether it computes logits of the last position alone where it is asked to
    cache_name : what it calls the cache: ``past_key_values`` or, in later releases, ``cache``
    """

    module: Any
    format: str
    dtype: str
    is_quantised: bool
    last_only: bool
    cache_name: str

    def prompt(self, tokens: int) -> Any:
        """Random tokens, the same ones each time."""
        import torch

        source = torch.Generator().manual_seed(_SEED)
        vocabulary = int(self.module.get_input_embeddings().num_embeddings)
        return torch.randint(0, vocabulary, (1, tokens), generator=source).to(self.module.device)

    def step(self, tokens: Any, cache: Any, *, use_cache: bool) -> tuple[Any, Any]:
        """Pass tokens through the model; the likeliest next one, and the cache."""
        more = {"logits_to_keep": 1} if self.last_only else {}
        out = self.module(input_ids=tokens, use_cache=use_cache, **{self.cache_name: cache}, **more)
        return out.logits[:, -1:].argmax(-1), getattr(out, self.cache_name) if use_cache else None

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights, counted from the tensors, with the scales of quantised ones."""
        held = {id(weight): weight for weight in self.module.parameters()}
        for weight in list(held.values()):
            state = getattr(weight, "quant_state", None)  # of 4 bits, whose scales may be quantised themselves
            while state is not None:
                held[id(state.absmax)] = state.absmax
                state = getattr(state, "state2", None)
        for part in (*self.module.parameters(), *(getattr(each, "state", None) for each in self.module.modules())):
            scales = getattr(part, "SCB", None)  # of 8 bits, which move from the weight to its layer
            held |= {} if scales is None else {id(scales): scales}
        return sum(tensor.nbytes for tensor in held.values())

    @staticmethod
    def bytes_of_cache(cache: Any) -> int:
        """Bytes of keys, values and states, counted from the tensors."""
        import torch

        layers = getattr(cache, "layers", ())
        held = [value for layer in layers for value in vars(layer).values() if isinstance(value, torch.Tensor)]
        return sum(value.nbytes for value in held)

    def begin_peak(self, machine: Machine) -> Callable[[], int | None]:
        """Forget the peak of memory so far; the function gives the one since then.

        On a GPU it is what torch had allocated. On a CPU it is the weights, and by how much the process grew beyond what it held before:
        what libraries take for themselves is not the model's.
        """
        import torch

        if machine.kind == "cuda":
            torch.cuda.reset_peak_memory_stats(machine.index)
            return lambda: int(torch.cuda.max_memory_allocated(machine.index))
        if machine.kind == "mps":
            return lambda: int(torch.mps.driver_allocated_memory())
        before = status_bytes("VmRSS") if _reset_peak() else None
        return lambda: None if before is None else self.weights_bytes + _grown(before)

    def close(self, machine: Machine) -> None:
        """Give its memory back."""
        self.module = None
        gc.collect()
        machine.empty_cache()


def _grown(before: int) -> int:
    return max(0, (status_bytes("VmHWM") or 0) - before)


def status_bytes(name: str) -> int | None:
    """A figure of this process's memory as Linux gives it; None elsewhere."""
    try:
        text = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def load_model(folder: Path, name: str, machine: Machine) -> LoadedModel:
    """Load a model in a format of its weights.

    Raises
    ------
    MeasureError : when it cannot be: what transformers or bitsandbytes say, in one line
    """
    needed = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    free = machine.free_bytes()
    if name == "stored" and free and needed > free:
        got = f"{needed / 1e9:.1f} GB of weights"
        raise MeasureError("measure hf", got=got, wanted=f"at most {free / 1e9:.1f} GB, which are free")
    try:
        return _loaded(folder, name, machine)
    except MeasureError as error:
        raise error.at(str(folder)) from error
    except Exception as error:  # whatever libraries raise on a folder that they cannot use
        gc.collect()
        machine.empty_cache()
        got = "no memory" if out_of_memory(error) else show(first_line(error), 200)
        raise MeasureError("model", got=got, wanted=f"one that transformers loads {FORMATS[name].title}") from error


def _loaded(folder: Path, name: str, machine: Machine) -> LoadedModel:
    import inspect

    transformers = transformers_module()
    options: dict[str, Any] = {
        "local_files_only": True,
        "trust_remote_code": False,
        "use_safetensors": True,
        "attn_implementation": "sdpa",
        "dtype": "auto",
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # they are refused below, by name
    }
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    config._attn_implementation = "sdpa"  # noqa: SLF001  # what the file names would be taken before the option
    is_quantised = getattr(config, "quantization_config", None) is not None
    bits = FORMATS[name].options
    if bits:
        _need_bitsandbytes(is_quantised=is_quantised)
        options["dtype"] = dtype = _dtype_of(config)
        compute = {"bnb_4bit_compute_dtype": dtype} if name == "nf4" else {}
        options["quantization_config"] = transformers.BitsAndBytesConfig(**bits, **compute)
        options["device_map"] = {"": machine.torch_device}
    module, info = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, **options)
    _need_all(info.get("missing_keys", ()), [*info.get("mismatched_keys", ()), *_misshapen(module)])
    module = (module if bits else module.to(machine.torch_device)).eval()
    takes = inspect.signature(module.forward).parameters
    cache_name = "cache" if "cache" in takes else "past_key_values"
    return LoadedModel(module, name, _name_of(module.dtype), is_quantised, "logits_to_keep" in takes, cache_name)


def _need_all(missing: Iterable[str], mismatched: Iterable[tuple[str, Any, Any]]) -> None:
    """Refuse a folder without some weights, or with some of another shape than the configuration says: transformers would make them up."""
    names, others = sorted(missing), sorted(mismatched)
    if others:
        name, stored, wanted = others[0]
        got = f"{'x'.join(map(str, stored))} for {name}{_and_others(others)}"
        raise MeasureError("weights", got=show(got, 300), wanted=f"{'x'.join(map(str, wanted))}, as config.json says")
    if names:
        raise MeasureError("weights", got=show(f"none for {names[0]}{_and_others(names)}", 300), wanted="all of them")


def _misshapen(module: Any) -> Iterator[tuple[str, Any, Any]]:
    """Quantised matrices of another shape than their layer's, which transformers does not look at."""
    for name, part in module.named_modules():
        weight = getattr(part, "weight", None)
        state = getattr(weight, "quant_state", weight)  # of 4 bits, whose tensor is packed
        if state is None or not hasattr(part, "in_features"):
            continue
        wanted = (part.out_features, part.in_features)
        if tuple(state.shape) != wanted:
            yield f"{name}.weight", tuple(state.shape), wanted


def _and_others(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} others" if len(found) > 1 else ""


def _need_bitsandbytes(*, is_quantised: bool) -> None:
    if is_quantised:
        raise MeasureError("weights", got="weights that are quantised already", wanted="plain ones")
    from importlib import import_module

    try:
        for name in ("accelerate", "bitsandbytes"):
            import_module(name)
    except (ImportError, OSError, RuntimeError) as error:  # a library of CUDA that does not fit, too
        wanted = "bitsandbytes and accelerate, which the extra hf brings"
        raise MeasureError("bitsandbytes", got=first_line(error), wanted=wanted) from error


def _dtype_of(config: Any) -> Any:
    """The type of the stored weights as the configuration says; bf16 where it says none."""
    import torch

    found = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    found = getattr(torch, found, None) if isinstance(found, str) else found
    return found if isinstance(found, torch.dtype) else torch.bfloat16


def _name_of(dtype: Any) -> str:
    import torch

    names = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    if dtype not in names:
        raise MeasureError("dtype", got=str(dtype), wanted="float32, bfloat16 or float16")
    return names[dtype]
