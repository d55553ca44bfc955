"""The command line: assembles the verbs, and is the one place where errors become text and exit codes."""

import gc
import importlib
import io
import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from .errors import ExitCode, RoofplanError, show

# Each verb: the module of verbs/ that holds it, and whether it is a group of sub-commands.
VERBS = {
    "size": ("size", False),
    "kv": ("kv", False),
    "roofline": ("roofline", False),
    "sweep": ("sweep", False),
    "compare": ("compare", False),
    "advise": ("advise", False),
    "speculate": ("speculate", False),
    "claim": ("claim", False),
    "check": ("check", False),
    "figure": ("figure", False),
    "measure": ("measure", True),
    "hardware": ("hardware", True),
    "model": ("model", True),
    "engine": ("engine", True),
    "accuracy": ("accuracy", True),
}


def build_app(names: Iterable[str] = VERBS) -> typer.Typer:
    """The command line with some of its verbs: a run needs only its own, and the modules of the others take time to load."""
    app = typer.Typer(
        name="roofplan",
        help="Roofline and capacity planning for LLM inference: does it fit, how fast is it, what limits it.",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        module, is_group = VERBS[name]
        verb: Any = importlib.import_module(f".verbs.{module}", __package__)
        if is_group:
            app.add_typer(verb.app, name=name)
        else:
            app.command(name)(getattr(verb, name))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        sys.stdout.write(f"roofplan {__version__}\n")
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  # its callback prints and leaves
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001  # see run()
) -> None:
    """Roofline and capacity planning for LLM inference: does it fit, how fast is it, what limits it."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    # pydantic looks through all installed packages for plugins of its own; this process wants none, and starts faster.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Loading modules makes many objects that stay and few cycles: collecting as often as usual costs a start some per cent.
    gc.set_threshold(50_000)
    _prepare_streams()
    code = run(sys.argv[1:] if arguments is None else arguments)
    # Nothing is left to do: what leaves with the process need not be searched for cycles, which takes a fifth of a picture's time.
    gc.freeze()
    sys.exit(code)


def _prepare_streams() -> None:
    """Let output never fail for want of a stream or of a letter: closed streams lead nowhere, other encodings get escapes."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  # as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def run(arguments: list[str]) -> int:
    """Run the command line; every way out has its exit code (see :class:`~roofplan.errors.ExitCode`)."""
    debug = "--debug" in arguments
    asked = arguments[:1]
    try:
        code = build_app(asked if asked and asked[0] in VERBS else VERBS)(
            arguments, prog_name="roofplan", standalone_mode=False
        )
        sys.stdout.flush()
    except RoofplanError as error:
        return _fail(str(error), error.exit_code, debug=debug)
    except typer.TyperException as error:
        return _fail(_usage(error), ExitCode.BAD_INPUT, debug=debug)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", ExitCode.INTERRUPTED, debug=debug)
    except OSError as error:  # files are read elsewhere, with errors of their own: this is the output
        return _lost_output(error, debug=debug)
    except Exception as error:  # noqa: BLE001  # the last resort: a fault of ours must not look like an answer
        hint = "" if debug else "; run with --debug first and report what it shows"
        return _fail(f"internal error: {type(error).__name__}: {show(error)}{hint}", ExitCode.INTERNAL, debug=debug)
    return code if isinstance(code, int) else ExitCode.YES


def _lost_output(error: OSError, *, debug: bool) -> int:
    # Point the stream elsewhere, so that Python's own flush at exit stays quiet.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader has gone, and wants no more
        return ExitCode.NO
    return _fail(f"the answer cannot be written: {show(error.strerror)}", ExitCode.BAD_INPUT, debug=debug)


def _fail(message: str, code: int, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    sys.stderr.write(f"roofplan: {message}\n")
    return code


def _usage(error: typer.TyperException) -> str:
    message = " ".join(show(error.format_message(), 400).split()).replace("Value error, ", "")
    return f"{message} (roofplan --help shows what there is)"
