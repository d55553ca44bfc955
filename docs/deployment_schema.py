"""The JSON Schema of deployment files, for editors and validators: from the options of the library and the limits of the checks."""

from __future__ import annotations

from typing import Any

from roofplan.api.deployments import SCHEMA
from roofplan.api.limits import BOTTLENECKS, VERDICTS
from roofplan.api.options import Options

TEXT = {"type": "string", "minLength": 1}
COUNT = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+$"}]}
SIZE = {
    "type": "string",
    "pattern": "^[0-9]+(\\.[0-9]+)? ?([kMGTPE]|[KMGTPE]i)?B$",
    "description": "bytes, such as 4 GiB",
}
TIME = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? ?(s|ms|us|ns)$", "description": "time, such as 30 ms"}
POSITIVE = {"type": "number", "exclusiveMinimum": 0}
FRACTION = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?( ?%)?$"},
    ]
}

# What the annotations of the options mean in a file.
KINDS = {
    "Whole | None": COUNT,
    "Quantity | None": SIZE,
    "str | None": TEXT,
    "str | EngineProfile | None": TEXT,
    "bool | None": {"type": "boolean"},
    "float | str | None": FRACTION,
}

LIMITS = {
    "fits": {"type": "boolean", "description": "all sequences of the workload fit at their full length"},
    "headroom": SIZE | {"description": "free memory of each device, at least, such as 4 GiB"},
    "context": COUNT | {"description": "longest sequence that memory and model allow, at least"},
    "concurrency": COUNT | {"description": "sequences of the workload's length in memory, at least"},
    "ttft": TIME | {"description": "time to first token, at most, such as 500 ms"},
    "tpot": TIME | {"description": "time per output token, at most, such as 30 ms"},
    "e2e": TIME | {"description": "time of a whole request, at most, such as 20 s"},
    "output_tokens_per_s": POSITIVE | {"description": "of the whole deployment at its workload, at least"},
    "requests_per_s": POSITIVE | {"description": "of the whole deployment at its workload, at least"},
    "usd_per_million_output_tokens": POSITIVE | {"description": "at most; usd_per_hour is the price of one device"},
    "joules_per_output_token": POSITIVE | {"description": "at most"},
}


def deployment_schema() -> dict[str, Any]:
    """The schema. The program itself is stricter: it also refuses what no model, device or engine has."""
    options = {name: KINDS[kind] for name, kind in _annotations().items()}
    options["kv_cache_bytes"] = {"anyOf": [SIZE, {"type": "integer", "minimum": 1}]}  # its key names the unit
    claim = {"claim": TEXT | {"description": "such as 45 tok/s"}, "verdict": {"enum": list(VERDICTS)}}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["schema", "model", "hardware"],
        "properties": {
            "schema": {"const": SCHEMA},
            "name": TEXT | {"description": "what it is called in a comparison and in findings"},
            "model": TEXT | {"description": "name, Hugging Face id, or path beside this file"},
            "hardware": TEXT | {"description": "name or path beside this file"},
            **options,
            "usd_per_hour": {"type": "number", "minimum": 0, "description": "price of one device"},
            "shared_prefix_tokens": COUNT | {"description": "tokens that requests have in common at their beginning"},
            "limits": {"type": "object", "additionalProperties": False, "properties": LIMITS},
            "expect": {
                "type": "array",
                "items": {"anyOf": [_exactly(claim), _exactly({"bottleneck": {"enum": list(BOTTLENECKS)}})]},
            },
        },
    }


def _annotations() -> dict[str, str]:
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in Options.__annotations__.items()}


def _exactly(properties: dict[str, Any]) -> dict[str, Any]:
    """A mapping with these keys, of which the first must be there."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [next(iter(properties))],
        "properties": properties,
    }
