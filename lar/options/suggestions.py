"""Suggestions for an unknown flag: a flag of lar that means the same or has a similar name."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

SWITCH = "is a switch, which takes no value"


@functools.cache
def other_runners() -> Mapping[str, str]:
    """Return what the flags of other programs mean in lar, by the names of these flags.

    A meaning is a flag of lar with the same purpose, or a sentence that says what to do instead.
    """
    meanings = {}
    with open(os.path.join(os.path.dirname(__file__), "other_runners.txt")) as file:
        for line in file:
            if not line.startswith("#"):
                meaning, _, names = line.rpartition(": ")
                meanings.update(dict.fromkeys(names.split(), meaning))
    return meanings


def suggest_flag(word: str, flags: Iterable[str]) -> str:
    """Return a hint for an unknown flag; empty if no known flag is similar.

    `word` and `flags` are flags that begin with hyphens, or keywords of `lar.run`.
    """
    known = list(flags)
    is_flag = word.startswith("-")
    name = word.lstrip("-").replace("_", "").replace("-", "")
    found = other_runners().get(name if len(name) == 1 else name.lower(), "")
    if " " in found:  # a sentence; it applies only to a run
        return found if ("--iter" if is_flag else "iter") in known else ""
    found = found if is_flag else found.lstrip("-").replace("-", "_")
    near = found if found in known else nearest_spelling(word, known)
    return f"did you mean {near if is_flag else repr(near)}?" if near else ""


def hint_after(words: list[str], word: str) -> str:
    """Return the hint for a word of a command line that is neither a flag nor its value."""
    from lar.options.table import option_of  # slow to import, and few errors need it

    flag = {it: flag for flag, it in pairwise(words) if flag.startswith("--")}.get(word, "")
    if flag == "--cuda" and (number := word.removeprefix(":")).isdigit():
        return f"write --cuda:{number}"
    option = option_of(flag.lstrip("-").replace("-", "_"))
    return f"{flag} {SWITCH}" if option and option.parse is None else "flags begin with --"


def nearest_spelling(word: str, known: Collection[str]) -> str:
    """Return the known word that the user probably meant; empty if no known word is similar.

    A known word is similar if it begins with the mistyped word. A known word is also similar if it
    differs from the mistyped word by few typing mistakes. One mistake is allowed in a word of up to
    seven letters. In a longer word, one mistake is allowed for every four letters, and two
    mistakes are always allowed.
    """
    letters = word.lstrip("-")
    begun = [each for each in known if each.startswith(word)]
    if len(begun) == 1 and len(letters) >= 3:
        return begun[0]
    most = 1 if len(letters) < 8 else max(2, len(letters) // 4)
    near = [each for each in known if abs(len(each.lstrip("-")) - len(letters)) <= most]
    distances = {each: typing_mistakes(letters, each.lstrip("-")) for each in near}
    return min((it for it in near if distances[it] <= most), key=distances.__getitem__, default="")


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return `; did you mean 'x'?` for a mistyped word; empty if no known word is similar."""
    near = nearest_spelling(word, known)
    return f"; did you mean {near!r}?" if near else ""


def typing_mistakes(word: str, other: str) -> int:
    """Return the number of typing mistakes between two words.

    A mistake leaves out, adds or replaces a letter, or swaps two neighbours. The number is the
    optimal string alignment distance.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, its in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == its:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]
