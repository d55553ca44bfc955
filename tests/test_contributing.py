"""The annotated templates of CONTRIBUTING.md are valid specs, show every field, and say truly what may be left out."""

import copy
import dataclasses
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import roofplan.engines.profile
import roofplan.engines.spec
import roofplan.engines.timing
import roofplan.hardware.achieved
import roofplan.hardware.spec
import roofplan.models.spec
from roofplan import engines, hardware, models, specfiles
from roofplan.documents import Document, parse_json, parse_yaml
from roofplan.engines.spec import NumberFormat, StoredFormat
from roofplan.errors import RoofplanError
from roofplan.models import config
from roofplan.models.write import to_yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TEMPLATES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
READERS = {
    "roofplan/hardware/v1": hardware.from_document,
    "roofplan/model/v1": models.from_document,
    "roofplan/format/v1": lambda document: specfiles.validate(NumberFormat, document),
    "roofplan/engine/v1": engines.profiles.from_document,
    "roofplan/kernels/v1": hardware.kernels_from_document,
}
MODULES = (
    roofplan.engines.profile,
    roofplan.engines.spec,
    roofplan.engines.timing,
    roofplan.hardware.achieved,
    roofplan.hardware.spec,
    roofplan.models.spec,
)
# Not written by hand: the marker of unions, and what the readers of weight files fill in.
FILLED_BY_READERS = {"checkpoint", "assumed"}
NOT_WRITTEN = {models.spec.Tagged, models.spec.Stored, StoredFormat}


def documents() -> list[Document]:
    return [parse_yaml(text, f"template {number}") for number, text in enumerate(TEMPLATES)]


def read(document: Document) -> Any:
    return READERS[document.data["schema"]](document)


def keys_shown(data: Any, spec: Any, shown: dict[type, set[str]]) -> None:
    """Note which fields of which spec class the data sets."""
    if dataclasses.is_dataclass(spec) and isinstance(data, dict):
        shown[type(spec)].update(data)
        for key, value in data.items():
            keys_shown(value, getattr(spec, key), shown)
    elif isinstance(spec, dict):
        for key, value in data.items():
            keys_shown(value, spec[key], shown)
    elif isinstance(spec, tuple):
        for value, item in zip([data] if isinstance(data, dict) else data, spec, strict=False):
            keys_shown(value, item, shown)


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.data["name"])
def test_a_template_is_a_valid_spec(document: Document) -> None:
    read(document)
    kind = document.data["schema"].split("/")[1]
    schema = json.loads((ROOT / "docs" / "schemas" / f"{kind}-v1.json").read_text(encoding="utf-8"))
    jsonschema.validate(document.data, schema)


def test_the_templates_show_every_field_of_every_spec_class() -> None:
    shown: dict[type, set[str]] = defaultdict(set)
    for document in documents():
        keys_shown(document.data, read(document), shown)
    missing = {
        f"{item.__name__}.{field.name}"
        for module in MODULES
        for item in vars(module).values()
        if isinstance(item, type) and dataclasses.is_dataclass(item) and item.__module__ == module.__name__
        if item not in NOT_WRITTEN
        for field in dataclasses.fields(item)
        if field.name not in shown[item] | FILLED_BY_READERS
    }
    assert missing == set()


def comment_on(lines: list[str], line: int) -> str:
    """The comment on a line, or else the ones directly above it."""
    if "#" in lines[line]:
        return lines[line].split("#", 1)[1].strip()
    above = []
    while line and lines[line - 1].strip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].strip("# "))
    return " ".join(above)


@pytest.mark.parametrize(
    ("text", "document"), list(zip(TEMPLATES, documents(), strict=True)), ids=range(len(TEMPLATES))
)
def test_mandatory_and_optional_are_said_truly(text: str, document: Document) -> None:
    lines = text.splitlines()
    checked = 0
    for path in document.places:
        parent = document.data
        for step in path[:-1]:
            parent = parent[step]
        if not path or not isinstance(parent, dict):
            continue
        pattern = re.compile(rf"\s*(- )?{re.escape(str(path[-1]))}:")
        at = max((n for n in range(document.places[path][0]) if pattern.match(lines[n])), default=None)
        said = re.match(r"mandatory|optional", comment_on(lines, at)) if at is not None else None
        if said is None:
            continue
        without = copy.deepcopy(document.data)
        parent = without
        for step in path[:-1]:
            parent = parent[step]
        del parent[path[-1]]
        try:
            READERS[document.data["schema"]](Document(without, "without"))
            needed = "optional"
        except RoofplanError:
            needed = "mandatory"
        assert said[0] == needed, path
        checked += 1
    assert checked >= 5


def test_a_model_template_survives_being_written() -> None:
    for document in documents():
        if document.data["schema"] == "roofplan/model/v1":
            spec = models.from_document(document)
            assert models.from_document(parse_yaml(to_yaml(spec), "written")) == spec


def test_the_example_of_a_family_reads_a_configuration() -> None:
    config.families()  # register the real ones first
    code = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0]
    names = {"__name__": "roofplan.models.families._example", "__package__": "roofplan.models.families"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    keys = {"hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 6, "num_attention_heads": 4, "head_dim": 16}
    keys |= {"model_type": "example", "num_key_value_heads": 2, "intermediate_size": 128, "sliding_window": 32}
    spec = models.from_document(parse_json(json.dumps(keys), "config.json"))
    assert sum(group.count for group in spec.layers) == 6
    assert {mixer.kind for group in spec.layers for mixer in group.attention} == {"full", "sliding"}
