"""Reading spec files, saying what is wrong with them and where, and finding catalogue entries by any of their names."""

from __future__ import annotations

import io
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan import engines, hardware, models, specfiles
from roofplan.documents import Document, parse_yaml
from roofplan.errors import RoofplanError, SpecError, UnknownNameError
from roofplan.models.spec import Tagged
from roofplan.quantities import Bytes, PositiveCount
from roofplan.specfiles import Catalogue, looks_like_path, read_bytes, read_document, read_text, validate

CATALOGUES = {
    "models": models.CATALOGUE,
    "hardware": hardware.CATALOGUE,
    "engines": engines.CATALOGUE,
    "formats": engines.FORMATS,
}

# ------------------------------------------------------------------------------------------------ files


def refused(path: str | Path, **options: Any) -> str:
    """The line with which a file is refused; a reader that hangs fails the test."""
    lines: list[str] = []

    def read() -> None:
        try:
            read_bytes(path, **options)
        except SpecError as error:
            lines.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(5)
    assert lines, "it hangs, or was read"
    return lines[0]


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)))
    assert read_bytes(tmp_path / "f") == bytes(range(256))


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a: 1")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    assert read_bytes(tmp_path / "link") == b"a: 1"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.yaml") == f"{tmp_path}/none.yaml: file: got no such file or directory"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "a folder, FIFO or device, want a regular file" in refused(tmp_path)


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "a folder, FIFO or device" in refused(tmp_path / "fifo")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_refused(device: str) -> None:
    assert refused(device).startswith(f"{device}: file: got ")


@pytest.mark.parametrize("path", ["x" * 5_000, f"{'d/' * 3_000}f", "a\0b"])
def test_a_path_that_cannot_be_is_refused(path: str) -> None:
    assert "file: got " in refused(path)


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "symbolic links" in refused(tmp_path / "a")


def test_descriptors_are_closed_after_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    first = os.open(tmp_path / "f", os.O_RDONLY)
    for _ in range(20):
        refused(tmp_path)
    next_free = os.open(tmp_path / "f", os.O_RDONLY)
    os.close(first)
    os.close(next_free)
    assert next_free <= first + 2


@pytest.mark.parametrize("size", [2**20, 2**20 + 1, 2**22])
def test_a_file_of_more_than_a_mebibyte_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(b"#" * size)
    if size == 2**20:
        assert len(read_bytes(tmp_path / "f")) == size
    else:
        assert "more than 1,048,576 bytes" in refused(tmp_path / "f")


@pytest.mark.parametrize(("content", "data"), [(b'{"a": 1}', {"a": 1}), (b"a: 1", {"a": 1}), (b"", None)])
def test_standard_input_holds_yaml_or_json(content: bytes, data: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    document = read_document("-")
    assert (document.data, document.name) == (data, "<stdin>")


def test_endless_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero", "rb") as zeros:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=zeros))
        assert "more than" in refused("-")


def test_a_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("-") == "standard input: got a closed one, want a file"


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    for name, content in (("f.yaml", "a: é"), ("f.json", '{"a": "é"}')):
        (tmp_path / name).write_bytes(content.encode("utf-8-sig"))
        assert read_document(tmp_path / name).data == {"a": "é"}


@pytest.mark.parametrize(
    ("content", "offset"),
    [(b"a: \xff", 3), (b"\xc3\xa9: \xc3", 4), (b"\xed\xa0\x80", 0), (b"\xc0\x80", 0), ("a: 1".encode("utf-16"), 0)],
)
def test_text_that_is_not_utf8_is_refused_with_the_offset(tmp_path: Path, content: bytes, offset: int) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(SpecError, match=rf": text: got a byte that is not UTF-8 at offset {offset}, want UTF-8$"):
        read_text(tmp_path / "f")


def test_the_name_decides_between_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text("a: 1")
    with pytest.raises(SpecError, match="malformed JSON"):
        read_document(tmp_path / "f.json")


# ------------------------------------------------------------------------------------------------ validation

STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """A member of a union."""

    kind: Literal["square"]
    side: PositiveCount
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle:
    """Another one, which refuses odd sizes."""

    kind: Literal["circle", "disc"]
    radius: PositiveCount
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    def __post_init__(self) -> None:
        if self.radius % 2:
            raise ValueError(f"got radius {self.radius}, want an even one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A small spec."""

    name: str
    size: Bytes
    bold: bool = False
    tags: tuple[str, ...] = ()
    notes: dict[str, str] | None = None
    shapes: tuple[Annotated[Square | Circle, Tagged("kind")], ...] = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT


def drawing(text: str) -> Drawing:
    """Read a drawing."""
    return validate(Drawing, parse_yaml(text, "f"))


GOOD = "name: x\nsize: 80 GB\nbold: true\ntags: [a]\nnotes: {k: v}\nshapes:\n  - {kind: square, side: 3}\n"


def test_a_good_file_becomes_the_class() -> None:
    shapes = (Square(kind="square", side=3),)
    assert drawing(GOOD) == Drawing(name="x", size=80 * 10**9, bold=True, tags=("a",), notes={"k": "v"}, shapes=shapes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (("name: x", "nam: x"), "f:1:6: nam: got an unknown key, want a key of the schema"),
        (("name: x\n", ""), "f:1:1: name: got nothing, want this key"),
        (("name: x", "name: 5"), "f:1:7: name: got 5, want a text"),
        (("name: x", "name: [x]"), "f:1:7: name: got a list, want a text"),
        (("name: x", "name:"), "f:1:6: name: got nothing, want a text"),
        (("bold: true", "bold: 1"), "f:3:7: bold: got 1, want true or false"),
        (("bold: true", "bold: yes"), "f:3:7: bold: got 'yes', want true or false"),
        (("tags: [a]", "tags: a"), "f:4:7: tags: got 'a', want a list"),
        (("tags: [a]", "tags: {a: 1}"), "f:4:7: tags: got a mapping, want a list"),
        (("tags: [a]", "tags: [a, 5]"), "f:4:11: tags.1: got 5, want a text"),
        (("{k: v}", "{k: 5}"), "f:5:12: notes.k: got 5, want a text"),
        (("{k: v}", "[k]"), "f:5:8: notes: got a list, want a mapping"),
        (("80 GB", "80"), "f:2:7: size: got 80, want bytes such as 80 GB or 74.5 GiB (a number without unit says nothing: add one)"),
        (("80 GB", "80 gb"), "f:2:7: size: got '80 gb', want bytes such as 80 GB or 74.5 GiB (did you mean 80 GB or 80 GiB?)"),
        (("80 GB", "[]"), "f:2:7: size: got a list, want bytes such as 80 GB or 74.5 GiB"),
        (("side: 3", "side: 0"), "f:7:26: shapes.0.side: got 0, want a count such as 8192, greater than zero"),
        (("side: 3", "sid: 3"), "f:7:25: shapes.0.sid: got an unknown key, want a key of the schema"),
        ((", side: 3", ""), "f:7:5: shapes.0.side: got nothing, want this key"),
        (("kind: square", "kind: cube"), "f:7:12: shapes.0.kind: got 'cube', want 'square', 'circle', 'disc'"),
        (("kind: square, ", ""), "f:7:5: shapes.0.kind: got nothing, want this key"),
        (("{kind: square, side: 3}", "5"), "f:7:5: shapes.0: got 5, want a mapping"),
        (("kind: square, side: 3", "kind: disc, radius: 3"), "f:7:5: shapes.0: got radius 3, want an even one"),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_place(changes: tuple[str, str], line: str) -> None:
    assert changes[0] in GOOD
    with pytest.raises(SpecError) as caught:
        drawing(GOOD.replace(*changes))
    assert str(caught.value) == line


@pytest.mark.parametrize(("text", "got"), [("[1]", "a list"), ("5", "5"), ("x", "'x'"), ("", "nothing")])
def test_a_document_that_is_no_mapping_is_refused(text: str, got: str) -> None:
    with pytest.raises(SpecError, match=rf"document: got {got}, want a mapping$"):
        drawing(text)


def test_a_wrong_key_is_named_before_a_missing_one() -> None:
    with pytest.raises(SpecError, match="nmae: got an unknown key"):
        drawing("nmae: x\nsize: 1 B")


# ------------------------------------------------------------------------------------------------ catalogues


def parsed_names(catalogue: Catalogue) -> dict[str, set[str]]:
    """The slugs that own each name, from the parsed files."""
    owners: dict[str, set[str]] = {}
    for slug in catalogue.slugs():
        data = catalogue.read(slug).data
        for name in [slug, *data.get("aliases", []), *(entry["id"] for entry in data.get("ids", []))]:
            owners.setdefault(specfiles.spelled(name), set()).add(slug)
    return owners


@pytest.mark.parametrize("room", CATALOGUES)
def test_text_search_and_parsed_lists_agree(room: str) -> None:
    catalogue = CATALOGUES[room]
    assert {name: {slug} for name, slug in catalogue.names().items()} == parsed_names(catalogue)


@pytest.mark.parametrize("room", CATALOGUES)
def test_every_name_leads_to_its_only_owner(room: str) -> None:
    catalogue = CATALOGUES[room]
    for name, owners in parsed_names(catalogue).items():
        assert {catalogue.find(f" {name.upper()} ").name} == {f"{owner}.yaml" for owner in owners}


@pytest.mark.parametrize("room", CATALOGUES)
def test_a_file_is_named_like_what_it_holds(room: str) -> None:
    for slug in CATALOGUES[room].slugs():
        assert specfiles.SLUG.fullmatch(slug)
        assert CATALOGUES[room].read(slug).data["name"] == slug


@pytest.mark.parametrize(
    ("room", "name", "offered"),
    [
        ("models", "llama-3.1-8", "llama-3.1-8b"),
        ("models", "meta-llama/Llama-3.1-8b-Instrukt", "llama-3.1-8b"),
        ("models", "lama-2-7b", "llama-2-7b"),
        ("models", "qwen3", "qwen3-"),
        ("hardware", "h1000", "h100-sxm5-80gb"),
        ("hardware", "NVIDIA H100 80GB HBM2", "h100-sxm5-80gb"),
        ("formats", "bf17", "bf16"),
        ("engines", "plane", "plain"),
    ],
)
def test_a_near_miss_is_answered_with_the_closest_names(room: str, name: str, offered: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        CATALOGUES[room].find(name)
    assert caught.value.hint.startswith("did you mean ")
    assert offered in caught.value.hint


def test_a_wild_guess_is_answered_with_what_is_known() -> None:
    with pytest.raises(UnknownNameError, match=r"in the catalogue \(roofplan engine list shows them\)"):
        engines.CATALOGUE.find("zzzz")
    with pytest.raises(UnknownNameError, match=r"in the catalogue \(roofplan model list shows them\)"):
        models.CATALOGUE.find("zzzz")
    with pytest.raises(UnknownNameError, match=r"in the catalogue \(roofplan hardware list shows them\)"):
        hardware.CATALOGUE.find("zzzz")


TRAVERSALS = [
    "../../etc/passwd",
    "..",
    ".",
    "/etc/passwd",
    "llama-3.1-8b/../gpt2",
    "..\\gpt2",
    "catalogue/gpt2",
    "gpt2.yaml",
]
TRAVERSALS += [
    "%2e%2e/gpt2",
    "gpt2\0",
    "",
    " ",
    "~",
    "*",
    "gpt?",
    "[g]pt2",
    "con",
    "a" * 65,
    "x" * 100_000,
    "-",
    "--help",
]


@pytest.mark.parametrize("name", TRAVERSALS, ids=lambda name: repr(name[:20]))
@pytest.mark.parametrize("room", CATALOGUES)
def test_a_name_never_becomes_a_path(room: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specfiles, "read_document", lambda path: pytest.fail(f"{path} was opened"))
    with pytest.raises(UnknownNameError):
        CATALOGUES[room].find(name)


def test_only_what_stands_as_a_name_is_one(tmp_path: Path) -> None:
    ids = '  - {id: "org/y", weights: "experts=fp8"}\n  - id: "org/w"\n'
    (tmp_path / "a.yaml").write_text(f'aliases: ["x1", "x2"]\nids:\n{ids}notes: "z"\n')
    catalogue = Catalogue(tmp_path, "thing")
    for name in ('x1", "x2', 'x1"', '"x1"', "z", "experts=fp8", "x1, x2", "x"):
        with pytest.raises(UnknownNameError):
            catalogue.find(name)
    assert catalogue.names() == dict.fromkeys(["a", "x1", "x2", "org/y", "org/w"], "a")


@given(st.text())
@settings(deadline=None, max_examples=50)
def test_any_name_is_found_or_unknown(name: str) -> None:
    for catalogue in CATALOGUES.values():
        try:
            assert catalogue.find(name).data["name"]
        except UnknownNameError as error:
            assert str(error).isprintable()  # noqa: PT017  # finding something is as good


@pytest.mark.parametrize("name", ["-", "a.yaml", "a.yml", "a.json", "./a", "../a", "/a", ".", "~/a.yaml", "a.gguf"])
def test_what_looks_like_a_path(name: str) -> None:
    assert looks_like_path(name)


@pytest.mark.parametrize("name", ["gpt2", "org/name", "a/" + "b" * 5_000, "a/\0", "RTX 4090", "yaml", ""])
def test_what_looks_like_a_name(name: str) -> None:
    assert not looks_like_path(name)


@pytest.mark.parametrize("name", ["./" + "b" * 5_000, "/" + "b/" * 5_000, "./\0"])
@pytest.mark.parametrize("load", [models.load, hardware.load])
def test_a_path_that_cannot_be_asked_about_is_an_error(name: str, load: Any) -> None:
    with pytest.raises(RoofplanError, match=r": file: got (file name too long|not a valid path)"):
        load(name)


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"config\.json: file: got no such file or directory"):
        models.load(str(tmp_path))
    with pytest.raises(SpecError, match="a folder, FIFO or device"):
        hardware.load(str(tmp_path))


@pytest.mark.parametrize("data", [None, [], 5, "x"])
def test_a_document_without_keys_is_no_spec(data: object) -> None:
    for from_document in (models.from_document, hardware.from_document):
        with pytest.raises(SpecError, match="document: got no mapping"):
            from_document(Document(data, "f"))
