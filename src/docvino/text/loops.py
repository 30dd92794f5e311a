"""Cuts text in which a model went in circles, and leaves every other text as it is.

The generator stops most loops itself, by tokens; this sees what is left in the text.

Source: PaddleX 3.7.2, `truncate_repetitive_content` of the pipeline PaddleOCR-VL, as rules; the code is docvino's own.
"""

from __future__ import annotations

from collections import Counter

LEAST = 50  # characters; a shorter text is never cut
LEAST_TABLE = 5000  # a form's empty rows are no loop

_LONG = 100  # a text longer than this may have text before its loop; a shorter one is all loop or none
_REPEATS = 5  # of a unit of at least _UNIT characters, at the end of a long text
_UNIT = 8
_MANY = 10  # times that a unit makes up the whole text, that a loop ends any text, or that a line occurs
_MANY_CHARACTERS = 200
_MOST_LINES = 0.8


def cut(text: str, *, table: bool = False) -> tuple[str, bool]:
    """The text with one copy of what repeats, and whether anything was cut; a text without a loop comes back as it is.

    A loop is
    1. the end of a text of more than 100 characters, when it repeats 5 times or more and is more than half of it;
    2. a whole text that repeats 10 times or more;
    3. a line that occurs 10 times or more and is 80 % of the lines or more;
    4. the end of any text but a table, when it repeats letters or digits 10 times or more in 200 characters or more
       (a line of dots or dashes is printed in many forms).

    Texts below 50 characters, tables below 5000, have none.

    Differs: rule 1 keeps one copy of the unit (upstream keeps none, so that a text may vanish), rules 1 and 2 see loops
    of several lines (upstream looks at texts of one line only) whose last copy may be unfinished, rule 3 keeps
    the other lines, and rule 4, for loops that follow long sound text, is docvino's own.
    """
    if len(text) < (LEAST_TABLE if table else LEAST):
        return text, False
    stripped = text.strip()
    if (end := _end_of_first_copy(stripped, table=table)) is not None:
        return stripped[:end].strip(), True
    return _without_repeated_line(text)


def _end_of_first_copy(text: str, *, table: bool) -> int | None:
    """Where the first copy of the shortest unit that loops at the end of the text ends."""
    total = len(text)
    for period, equal in enumerate(_equal_tails(text)):
        run = period + equal
        if period == 0 or run < _REPEATS * period:
            continue
        counted = period * -(-_UNIT // period)  # short units count in pieces of 8 characters or more
        half = total > _LONG and run >= _REPEATS * counted and 2 * run > total
        whole = run == total > _MANY and run >= _MANY * period
        long = not table and run >= max(_MANY * period, _MANY_CHARACTERS) and any(map(str.isalnum, text[-period:]))
        if half or whole or long:
            return total - run + period
    return None


def _equal_tails(text: str) -> list[int]:
    """For each period: how many characters at the end of the text equal those one period before. Linear in time.

    That is the Z function of the reversed text.
    """
    reverse = text[::-1]
    total = len(reverse)
    equal = [0] * total
    left = right = 0  # the stretch furthest to the right that is known to equal the beginning
    for place in range(1, total):
        count = min(right - place, equal[place - left]) if place < right else 0
        while place + count < total and reverse[count] == reverse[place + count]:
            count += 1
        equal[place] = count
        if place + count > right:
            left, right = place, place + count
    return equal


def _without_repeated_line(text: str) -> tuple[str, bool]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < _MANY:
        return text, False
    ((line, count),) = Counter(lines).most_common(1)
    if count < _MANY or count < _MOST_LINES * len(lines):
        return text, False
    first = lines.index(line)
    return "\n".join(own for place, own in enumerate(lines) if own != line or place == first), True
