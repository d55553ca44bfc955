"""Which entries a token may attend to, by absolute positions alone, and the rotation of queries and keys by their positions.

Sources: Su et al. 2021 (arXiv 2104.09864) for rotary embeddings; StreamingLLM (arXiv 2309.17453) for the first tokens beside a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ...models.spec import Attention

_BASE = 10_000.0


def seen_by(queries: Any, entries: Any, mixer: Attention | None = None) -> Any:
    """Whether a query at a position sees the entry of a position: true or false for each pair, queries by entries.

    An entry is seen when it is not later than the query and, by the kind of the mixer: ``sliding``, one of the last ``window`` tokens or of
    the first ones; ``chunked``, of the same chunk; else always.

    Parameters
    ----------
    queries : positions, (count) or (sequences, count)
    entries : positions of the entries; negative ones are empty
    """
    asked, held = queries[..., :, None], entries[None, :]
    seen = (held <= asked) & (held >= 0)
    if mixer is None or mixer.window is None:
        return seen
    if mixer.kind == "chunked":
        return seen & (held // mixer.window == asked // mixer.window)
    return seen & ((asked - held < mixer.window) | (held < mixer.first_tokens))


class Rotations:
    """Cosines and sines of the positions of one pass, made once for each width that its layers rotate."""

    def __init__(self, positions: Any) -> None:
        self._positions = positions
        self._made: dict[tuple[int, Any], tuple[Any, Any]] = {}

    def rotate(self, x: Any) -> Any:
        """Rotate pairs of channels, one of each half, by position x base^(-2 i / width): (sequences, heads, tokens, width).

        A last channel without a partner stays as it is.
        """
        half = x.shape[-1] // 2
        if not half:
            return x
        cosine, sine = self._of(half, x.dtype)
        if x.shape[-1] == 2 * half:
            return x * cosine + x.roll(half, -1) * sine
        paired = x[..., : 2 * half]
        return torch.cat([paired * cosine + paired.roll(half, -1) * sine, x[..., 2 * half :]], dim=-1)

    def _of(self, half: int, dtype: Any) -> tuple[Any, Any]:
        found = self._made.get((half, dtype))
        if found is None:
            steps = torch.arange(half, device=self._positions.device, dtype=torch.float32) / half
            angles = self._positions[..., None].float() * _BASE**-steps
            if angles.dim() == 3:  # positions of each sequence: one axis for the heads
                angles = angles[:, None]
            cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
            found = torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1)
            self._made[half, dtype] = found
        return found
