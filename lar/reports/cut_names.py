"""Names cut to a width, so that no two that differ read alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

CUT = "..."
MOST_ROUNDS = 8  # how often names are cut again that read alike


def shorten(text: str, width: int) -> str:
    """Return a text without its middle if it is longer than `width`."""
    if len(text) <= width:
        return text
    if width <= len(CUT) + 2:
        return text[:width]
    head = (width - len(CUT) + 1) // 2
    return text[:head] + CUT + text[len(text) - (width - len(CUT) - head) :]


def cut_end(text: str, width: int) -> str:
    """Return a text without its end if it is longer than `width`."""
    return text if len(text) <= width else text[: width - len(CUT)] + CUT


def shorten_all(
    texts: Iterable[str], width: int, cut: Callable[[str, int], str] = shorten
) -> list[str]:
    """Return texts, cut if they are longer than `width`.

    Of texts that would read alike, the letters that differ stay, if there is room for some.
    """
    whole = [*texts]
    short = {text: cut(text, width) for text in whole if len(text) > width}
    if not short:
        return whole
    short = {text: short.get(text, text) for text in whole}
    for _ in range(MOST_ROUNDS):
        groups: dict[str, list[str]] = {}
        for text, seen in short.items():
            groups.setdefault(seen, []).append(text)
        alike = [group for group in groups.values() if len(group) > 1]
        places = [common_length(group) for group in alike]
        changed = {
            text: cut_around(text, place, width)
            for group, place in zip(alike, places, strict=True)
            for text in group
        }
        if changed.items() <= short.items():
            break
        short |= changed
    return [short[text] for text in whole]


def common_length(texts: Sequence[str]) -> int:
    """Return how many letters the beginnings of all texts share."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))


def cut_around(text: str, at: int, width: int) -> str:
    """Return a text cut to its beginning, the part from `at`, and its end."""
    room = width - 2 * len(CUT)
    if len(text) <= width or room < 4:
        return shorten(text, width)
    head, piece = room // 4, room // 2
    tail = room - head - piece
    start = max(at - 1, 0)
    if start <= head + len(CUT):
        return text[: width - len(CUT) - tail] + CUT + text[-tail:]
    if start + piece + len(CUT) >= len(text) - tail:
        return text[:head] + CUT + text[head + len(CUT) - width :]
    return text[:head] + CUT + text[start : start + piece] + CUT + text[-tail:]
