"""``roofplan kv``: bytes of the KV cache per token and per sequence."""

from . import options as o


def kv(
    model: o.Model,
    context: o.Context = None,
    kv_format: o.Kv = None,
    tp: o.Tp = None,
    strict: o.Strict = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Count the KV cache of a model: per token, per sequence, by layer group and by context.

    Examples:
    roofplan kv llama-3.1-8b

    roofplan kv gemma-3-27b --context 32768 --explain

    roofplan kv deepseek-v3 --kv fp8 --tp 8 --format json
    """
    from .. import api
    from ..errors import ExitCode
    from .render import print_answer

    print_answer(
        api.kv(model, context=context, kv=kv_format, tp=tp, strict=strict), output_format, color, explain=explain
    )
    return ExitCode.YES
