"""The report as one picture: a bar for each figure, with the span of its repeats. Drawn with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from docvino.bench.report import GROUPS, Report, Row, figure
from docvino.errors import ConfigError

WIDTH_PX = 1500
_NAME_PX, _FIGURE_PX, _MARGIN_PX = 560, 230, 30  # columns: what it is, how much; around
_ROW_PX, _HEAD_PX, _GAP_PX = 26, 44, 16
_INK, _PAPER, _FAINT, _SPAN = (28, 32, 40), (255, 255, 255), (120, 126, 138), (40, 44, 54)
_COLOURS = {"fp32": (92, 122, 166), "fp16": (74, 144, 132), "int8": (214, 138, 62), "int4": (176, 84, 106)}
_PLAIN = (128, 132, 142)


def write_chart(report: Report, path: Path) -> None:
    """Raises: ConfigError when the file cannot be written."""
    try:
        draw_chart(report).save(path, "PNG")
    except OSError as error:
        raise ConfigError(f"cannot write {path.name}: {error.strerror}", fix="name another folder with -o") from error


def draw_chart(report: Report) -> Image.Image:
    """Bars are comparable where unit and group are the same: the longest of those fills the width."""
    panels = [
        (f"{GROUPS.get(group, group)}, {unit}", list(rows))
        for (group, unit), rows in groupby(
            sorted(
                (row for row in report.rows if row.values),
                key=lambda row: (list(GROUPS).index(row.group) if row.group in GROUPS else 99, row.unit),
            ),
            key=lambda row: (row.group, row.unit),
        )
    ]
    height = 2 * _MARGIN_PX + 86 + sum(_HEAD_PX + _ROW_PX * len(rows) + _GAP_PX for _, rows in panels)
    image = Image.new("RGB", (WIDTH_PX, height), _PAPER)
    draw = ImageDraw.Draw(image)
    _text(draw, (_MARGIN_PX, _MARGIN_PX), f"docvino bench: {report.preset}", 28, _INK)
    machine = ", ".join(report.machine.values())
    _text(draw, (_MARGIN_PX, _MARGIN_PX + 38), f"{report.date}; {machine}"[:150], 16, _FAINT)
    said = "random weights; " * report.random_weights + "a quick run; " * report.quick
    _legend(draw, report.precisions, f"{said}line: from the smallest value to p95", _MARGIN_PX + 62)
    top = _MARGIN_PX + 86
    for title, rows in panels:
        top = _panel(draw, top, title, rows)
    return image


def _legend(draw: ImageDraw.ImageDraw, precisions: Sequence[str], said: str, top: int) -> None:
    left = _MARGIN_PX
    for name in precisions:
        draw.rectangle((left, top + 3, left + 13, top + 16), fill=_COLOURS.get(name, _PLAIN))
        _text(draw, (left + 20, top), name, 16, _INK)
        left += 80
    _text(draw, (left, top), said, 16, _FAINT)


def _panel(draw: ImageDraw.ImageDraw, top: int, title: str, rows: Sequence[Row]) -> int:
    """The place under it."""
    better = "higher is better" if rows[0].better == "higher" else "lower is better"
    _text(draw, (_MARGIN_PX, top + 14), f"{title} ({better})", 19, _INK)
    left = _MARGIN_PX + _NAME_PX
    room = WIDTH_PX - _MARGIN_PX - _FIGURE_PX - left
    longest = max(max(row.values) for row in rows)
    for place, row in enumerate(rows):
        y = top + _HEAD_PX + place * _ROW_PX
        assert row.median is not None
        assert row.p95 is not None
        _text(draw, (_MARGIN_PX + 8, y + 3), row.name[:64], 16, _INK)
        scale = room / longest if longest > 0 else 0.0
        end = left + max(0, round(row.median * scale))
        draw.rectangle(
            (left, y + 4, max(end, left + 1), y + _ROW_PX - 6), fill=_COLOURS.get(row.precision or "", _PLAIN)
        )
        span = [left + max(0, round(value * scale)) for value in (min(row.values), row.p95)]
        if span[1] > span[0]:
            middle = y + (_ROW_PX - 2) // 2
            draw.line([(span[0], middle), (span[1], middle)], fill=_SPAN, width=2)
        _text(draw, (max(end, span[1]) + 8, y + 3), f"{figure(row.median)} {row.precision or ''}", 16, _INK)
    return top + _HEAD_PX + _ROW_PX * len(rows) + _GAP_PX


def _text(draw: ImageDraw.ImageDraw, place: tuple[int, int], said: str, size: int, ink: tuple[int, int, int]) -> None:
    # The typeface that Pillow carries has Latin letters only.
    draw.text(place, said.encode("latin-1", "replace").decode("latin-1"), font=ImageFont.load_default(size), fill=ink)
