"""The lexer of shell text: words, places, variables, and what it refuses."""

import contextlib
import shlex
import time
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan.checks.record import Place, Said
from roofplan.checks.words import Locator, lex, split
from roofplan.errors import RoofplanError

START = Place("x.sh", 1, 1)


def words_of(text, environment=None, **options):
    given_here = {name: Said(value, START) for name, value in (environment or {}).items()}
    return [[word.value for word in command.words] for command in lex(text, START, given_here, **options).commands]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("vllm serve m", [["vllm", "serve", "m"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a \\\r\n  b", [["a", "b"]]),
        ("a b # c 'd\ne", [["a", "b"], ["e"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("(a b)", [["a", "b"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]),
        ("while true; do a; done", [["true"], ["a"]]),
        ("f() { a; }", [["f"], ["a"]]),
        ("A=1 b c", [["b", "c"]]),
        ("a > out 2>&1 < in b", [["a", "b"]]),
        ("a 2>/dev/null b", [["a", "b"]]),
        ("a &>> log", [["a"], []]),
        ("cat <<END\nvllm serve 'x\nEND\nb", [["cat"], ["b"]]),
        ("cat <<-'END'\n\tx\n\tEND\nb", [["cat"], ["b"]]),
        ("a ''", [["a", ""]]),
        ('a ""b', [["a", "b"]]),
        ("a $'x\\'y\\n'", [["a", "x'y\n"]]),
        ('a "x\\"y\\z\\\n"', [["a", 'x"y\\z']]),
        ("a '{\"x\": 1}'", [["a", '{"x": 1}']]),
        ("a $ b", [["a", "$", "b"]]),
        ("", []),
        ("\n\n# only\n", []),
    ],
)
def test_text_becomes_commands(text, commands):
    assert words_of(text) == [command for command in commands if command]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=1; x $A ${A}", ["x", "1", "1"]),
        ("A='1 2'; x $A", ["x", "1", "2"]),
        ("A='1 2'; x \"$A\"", ["x", "1 2"]),
        ("A='--a 1'; x y$A", ["x", "y--a", "1"]),
        ("A=' 1 '; x y$A", ["x", "y", "1"]),
        ("A=; x $A y", ["x", "y"]),
        ('A=; x "$A" y', ["x", "", "y"]),
        ("x ${A:-7}", ["x", "7"]),
        ("x ${A-7}", ["x", "7"]),
        ('A=; x ${A:-7} "${A-7}"', ["x", "7", ""]),
        ("A=3; x ${A:-7} ${A:+set}", ["x", "3", "set"]),
        ("x ${A:+set}", ["x"]),
        ("x ${A:=4}; x $A", ["x", "4"]),
        ('B=5; x ${A:-$B} ${A:-"${B}k"}', ["x", "5", "5k"]),
        ("A=1; A+=2; x $A", ["x", "12"]),
        ("export A=1 B=2; x $A$B", ["x", "12"]),
        ("A=1 x; x ${A:-unset}", ["x", "unset"]),
        ("A=(1 '2 3'); x \"${A[@]}\"", ["x", "1", "2 3"]),
        ("A=(1); A+=(2 # c\n 3); x ${A[@]}", ["x", "1", "2", "3"]),
        ('A=(); x "${A[@]}" y', ["x", "y"]),
        ('x "$@" y $*', ["x", "y"]),
        ("x ${1:-m}", ["x", "m"]),
        ("x '$A' \\$A", ["x", "$A", "$A"]),
        ("MODEL=org/m TP=2\nx $MODEL $TP", ["x", "org/m", "2"]),
    ],
)
def test_variables_are_those_of_the_text(text, words):
    script = lex(text, START, {})
    assert [word.value for word in script.commands[-1].words] == words
    assert not script.commands[-1].unknown


def test_variables_may_come_from_outside_and_the_text_outranks_them():
    assert words_of("x $A $B", {"A": "1", "B": "2"}) == [["x", "1", "2"]]
    assert words_of("A=3; x $A", {"A": "1"}) == [["x", "3"]]


@pytest.mark.parametrize(
    "word", ["$(cat f)", "`cat f`", "$A", "${A}", "${A:?no}", "${A%x}", "$1", "$((A+1))", "${!A}", "a$(b)c"]
)
def test_what_only_running_would_tell_is_kept_with_its_place(word):
    command = lex(f"x  {word} y", START, {}).commands[0]
    assert [word.value for word in command.words] == ["x", word, "y"]
    assert list(command.unknown) == [1]
    assert command.unknown[1].where == f"x.sh:1:{4 + word.index(word.lstrip('abc')[0])}"
    assert "running" in str(command.unknown[1])


def test_an_unknown_value_stays_unknown_through_a_variable():
    command = lex("A=$(hostname)\nx --b $A", START, {}).commands[0]
    assert command.unknown[2].where == "x.sh:1:3"


def test_nothing_is_executed(tmp_path):
    file = tmp_path / "made"
    lex(f"x $(touch {file}) `touch {file}` <(touch {file})", START, {})
    assert not file.exists()


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a $(b", "a ${b", "a $'b", 'a "$(b'])
def test_what_is_not_closed_is_a_problem(text):
    assert lex(text, START, {}).problems[0].where.startswith("x.sh:1:")


def test_each_word_has_its_place_and_its_spelling():
    command = lex('\n  vllm serve \\\n    "a b" --x=1', START, {}).commands[0]
    assert [(str(word.place), word.text) for word in command.words] == [
        ("x.sh:2:3", "vllm"),
        ("x.sh:2:8", "serve"),
        ("x.sh:3:5", '"a b"'),
        ("x.sh:3:11", "--x=1"),
    ]


def test_words_of_an_array_have_their_own_places():
    command = lex("A=(--a\n  --b)\nx ${A[@]}", START, {}).commands[0]
    assert [str(word.place) for word in command.words] == ["x.sh:3:1", "x.sh:1:4", "x.sh:2:3"]


def test_a_makefile_has_its_own_variables():
    text = "MODEL ?= org/m\nTP := 2\n\nserve: deps\n\t@vllm serve $(MODEL) -tp ${TP} --a $$HOME $(shell x)\n"
    command = lex(text, START, {}, make=True).commands[0]
    assert [word.value for word in command.words][:5] == ["vllm", "serve", "org/m", "-tp", "2"]
    assert sorted(command.unknown) == [6, 7, 8][: len(command.unknown)]


def test_a_scalar_is_split_without_a_shell():
    said = Said("--a $B 'c d' ; e # f\n g", Place("x.yaml", 3, 5))
    assert [word.value for word in split(said)] == ["--a", "$B", "c d", ";", "e", "#", "f", "g"]
    with pytest.raises(RoofplanError):
        split(Said("a 'b", START))


def test_words_are_found_in_the_file_that_they_come_from():
    text = "command: >\n  vllm serve m\n  --x 1\n  --x 2\n"
    locate = Locator(text, Place("x.yaml", 1, 10))
    script = lex("vllm serve m --x 1 --x 2\n", Place("x.yaml", 1, 10), {}, locate=locate)
    assert [str(word.place) for word in script.commands[0].words] == [
        *[f"x.yaml:2:{column}" for column in (3, 8, 14)],
        *[f"x.yaml:{line}:{column}" for line in (3, 4) for column in (3, 7)],
    ]


SHELL = st.text(
    alphabet=st.sampled_from(list("ab1 \t\n\r\\'\"$`(){}[]<>&|;#=+-:@*?!~%^,.A\u00e9\u202e\0")), max_size=200
)


@settings(max_examples=400, deadline=None)
@given(SHELL, st.booleans())
def test_any_text_is_lexed_without_a_fault(text, make):
    script = lex(text, START, {"A": Said("1 2", START)}, make=make)
    lines = text.split("\n")
    for command in script.commands:
        assert command.words
        for word in command.words:
            assert 1 <= word.place.line <= len(lines)
    assert all(isinstance(problem, RoofplanError) for problem in script.problems)
    with contextlib.suppress(RoofplanError):
        split(Said(text, START))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="abc '\"\\$#;|&\n", max_size=8), max_size=8))
def test_quoted_words_come_back(words):
    text = "x " + " ".join(shlex.quote(word) for word in words)
    assert words_of(text) == [["x", *words]]
    assert [word.value for word in split(Said(text, START))] == ["x", *words]


PIECES = [
    "a b\n",
    "A=1\nx $A\n",
    "'",
    '"$(\n',
    "${A:-",
    "$(",
    'x "${A:-b}" ',
    "A+=(x)\n",
    "a\\\n",
    "<<E\n",
    "`",
    "$A ",
    "((",
    "A+=$A\n",
    "x <(",
    "${A[@]} ",
]


@pytest.mark.parametrize("piece", PIECES)
def test_time_grows_with_the_length(piece):
    def seconds(count):
        text = piece * count
        # Without the collector of garbage, whose time grows faster than what it looks through.
        timer = timeit.Timer(lambda: lex(text, START, {"A": Said("x", START)}), timer=time.process_time)
        return min(timer.repeat(repeat=2, number=1))

    count = 80_000 // len(piece)
    short, long = seconds(count // 4), seconds(count)
    assert long < 0.15 or long < 9 * short
