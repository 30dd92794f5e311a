"""The structure of a table and the lines read in it -> cells with their text, and HTML.

HTML placement rule: a cell takes the next free place of its row; a place covered by a span from above is not free.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median

from docvino.document import Box, Cell, Line, Point, Polygon, Structure, polygon_box
from docvino.text import order
from docvino.text.paragraphs import join_lines

# Structures of drawn tables score 0.97 and more. The score does not tell what is a table: running text and grey noise
# score as much (0.99, 0.97). It only catches a network that computes nonsense.
LEAST_SCORE = 0.8
_MOST_RAGGED = 0.2  # share of rows that may be of another width; with more of them nobody knows what the columns are
_CROSSES = 0.25  # a line crosses into a cell that covers at least this share of it
_REACH = 0.5  # line heights by which a line may lie outside all cells and still belong to the nearest one
_LETTER_WIDTH = 0.4  # of a line's height: a letter or digit of a usual typeface in a box of text detection
_SHRUNK = 0.6  # of the way from row to row: cells that are lower than this are not where they are said to be
_FLAT = 0.65  # of the usual row height: an empty row at the edge that is lower than this is not there

_SPAN = re.compile(r' (col|row)span="(\d+)"')


@dataclass(frozen=True)
class Place:
    """Where a cell lies in the grid and on the page; no polygon for a place that the model did not see."""

    row: int
    column: int
    row_span: int
    column_span: int
    polygon: Polygon | None

    @property
    def covered(self) -> list[tuple[int, int]]:
        return [
            (row, column)
            for row in range(self.row, self.row + self.row_span)
            for column in range(self.column, self.column + self.column_span)
        ]


@dataclass(frozen=True)
class Grid:
    """Cells without text. `faults` says in words what is not as in a sound table, `broken` why it cannot be used."""

    places: tuple[Place, ...]
    rows: int
    columns: int
    faults: tuple[str, ...] = ()
    broken: str | None = None

    def holds(self, point: Point) -> bool:
        """True for a point between the outermost corners of a usable grid."""
        corners = [corner for place in self.places for corner in place.polygon or ()]
        if self.broken is not None or not corners:
            return False
        left, top, right, bottom = polygon_box(tuple(corners))
        return left <= point[0] <= right and top <= point[1] <= bottom


@dataclass(frozen=True)
class Table:
    """A table with its text; `outside` are the lines that lie in none of its cells."""

    cells: tuple[Cell, ...]
    warnings: tuple[str, ...] = ()
    outside: tuple[Line, ...] = ()

    @property
    def html(self) -> str:
        return to_html(self.cells)


def lay_out(structure: Structure) -> Grid:
    """The grid that the tokens describe, checked: rows of unequal width, spans that overlap or leave the table.

    Cells of a row that is too short are put into the columns that they lie under, and the rest of it stays empty.
    """
    places, rows, faults = _placed(structure)
    taken = Counter(spot for place in places for spot in place.covered)
    widths = _row_widths(taken, rows)
    columns = _usual(widths)
    grid = Grid(tuple(places), rows, columns, tuple(faults))
    if not places:
        return replace(grid, broken="it has no cells")
    if structure.finish != "stop":
        return replace(grid, broken="it has more cells than the model can say")
    if structure.score < LEAST_SCORE:
        return replace(grid, broken=f"the model is not sure of it ({structure.score:.2f})")
    if any(count > 1 for count in taken.values()):
        return replace(grid, broken="its spans overlap")
    ragged = [row for row in range(rows) if widths[row] != columns]
    if len(ragged) > _MOST_RAGGED * rows:
        return replace(grid, broken=f"{len(ragged)} of its {rows} rows are not {columns} cells wide")
    return _mended(grid, ragged, widths)


def fill(grid: Grid, lines: Sequence[Line], angle: float) -> Table:
    """Gives each line to the cell it lies in; `angle` is that of the page's text lines, in radians.

    A line that runs across several cells is cut at the blanks nearest to their borders, or goes whole to the cell
    that covers most of it. A line beside all cells goes to the nearest one, or stays outside when it is far off.
    """
    boxes = {
        index: order.straight_box(place.polygon, angle)
        for index, place in enumerate(grid.places)
        if place.polygon is not None
    }
    if (bands := _bands(grid, boxes)) is not None:
        # On noisy scans the quadrilaterals shrink to little around their centres, which stay right.
        boxes = bands
        places = tuple(replace(place, polygon=None) for place in grid.places)
        grid = replace(grid, places=places, faults=(*grid.faults, "the corners of its cells were not found"))
    content: dict[int, list[tuple[str, Box, float]]] = {}
    outside = []
    for line in lines:
        box = order.straight_box(line.polygon, angle)
        pieces = _pieces(line.text, box, boxes, grid)
        if not pieces:
            outside.append(line)
        for index, text, part in pieces:
            content.setdefault(index, []).append((text, part, line.confidence))
    grid, kept = _without_phantoms(grid, boxes, content)
    cells = tuple(_cell(place, content.get(index, [])) for place, index in zip(grid.places, kept, strict=True))
    return Table(cells, grid.faults, tuple(outside))


def to_html(cells: Iterable[Cell]) -> str:
    """`<table>` with a row a line, spans where they are above 1, and escaped text; an empty cell is empty."""
    rows: dict[int, list[Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.row, []).append(cell)
        for row in range(cell.row, cell.row + cell.row_span):
            rows.setdefault(row, [])  # a row that spans from above cover whole has no cell of its own
    body = [
        "<tr>" + "".join(_td(cell) for cell in sorted(rows[row], key=lambda cell: cell.column)) + "</tr>"
        for row in sorted(rows)
    ]
    return "\n".join(["<table>", *body, "</table>"])


def _td(cell: Cell) -> str:
    spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    spans += f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
    # A line break inside a cell would end the table where Markdown reads it.
    return f"<td{spans}>{html.escape(' '.join(cell.text.split()), quote=False)}</td>"


def _placed(structure: Structure) -> tuple[list[Place], int, list[str]]:
    """Places by the HTML rule, the number of rows, and what had to be put right."""
    places: list[Place] = []
    taken: set[tuple[int, int]] = set()
    polygons = iter(structure.polygons)
    row, column = -1, 0
    spans = {"row": 1, "col": 1}
    polygon: Polygon | None = None
    inside = False
    for token in structure.tokens:
        if token == "<tr>" or (row < 0 and token.startswith("<td")):
            row, column = row + 1, 0
        if token.startswith("<td"):
            spans, polygon, inside = {"row": 1, "col": 1}, next(polygons, None), True
        elif match := _SPAN.fullmatch(token):
            spans[match.group(1)] = int(match.group(2))
        if inside and token in ("<td></td>", "</td>"):
            inside = False
            while (row, column) in taken:
                column += 1
            place = Place(row, column, spans["row"], spans["col"], polygon)
            places.append(place)
            taken |= set(place.covered)
            column += place.column_span
    faults = []
    rows = row + 1
    for index, place in enumerate(places):
        if place.row + place.row_span > rows:
            faults.append(f"a cell of row {place.row + 1} spanned more rows than there are")
            places[index] = replace(place, row_span=rows - place.row)
    return places, rows, faults


def _row_widths(taken: Iterable[tuple[int, int]], rows: int) -> list[int]:
    widths = [0] * rows
    for row, _ in set(taken):
        widths[row] += 1
    return widths


def _usual(widths: Sequence[int]) -> int:
    """The width that most rows have; of two, the larger one."""
    counts = Counter(widths)
    return max(counts, key=lambda width: (counts[width], width), default=0)


def _mended(grid: Grid, ragged: Sequence[int], widths: Sequence[int]) -> Grid:
    columns = _column_ranges(grid, [row for row in range(grid.rows) if row not in ragged])
    places = list(grid.places)
    faults = list(grid.faults)
    for row in ragged:
        cells = [place for place in places if place.row == row]
        free = [
            column for column in range(grid.columns) if not any((row, column) in p.covered for p in _above(grid, row))
        ]
        chosen = _columns_under(cells, [(column, columns.get(column)) for column in free])
        if chosen is None or len(cells) > len(free):
            faults.append(f"row {row + 1} is {widths[row]} cells wide, the others {grid.columns}")
            continue
        faults.append(f"row {row + 1} had {widths[row]} cells where the others have {grid.columns}")
        places = [place for place in places if place.row != row]
        places += [replace(cell, column=column) for cell, column in zip(cells, chosen, strict=True)]
        places += [Place(row, column, 1, 1, None) for column in free if column not in chosen]
    places.sort(key=lambda place: (place.row, place.column))
    return replace(grid, places=tuple(places), faults=tuple(faults))


def _above(grid: Grid, row: int) -> list[Place]:
    """Places that reach into the row from above."""
    return [place for place in grid.places if place.row < row < place.row + place.row_span]


def _column_ranges(grid: Grid, sound: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Left and right of each column: medians of the plain cells in sound rows."""
    found: dict[int, list[Polygon]] = {}
    for place in grid.places:
        if place.polygon is not None and place.column_span == 1 and place.row in sound:
            found.setdefault(place.column, []).append(place.polygon)
    return {
        column: (
            median(min(x for x, _ in polygon) for polygon in polygons),
            median(max(x for x, _ in polygon) for polygon in polygons),
        )
        for column, polygons in found.items()
    }


def _columns_under(
    cells: Sequence[Place], columns: Sequence[tuple[int, tuple[float, float] | None]]
) -> list[int] | None:
    """A column for each cell, from left to right, by the least distance of centres; None when it cannot be told."""
    centres = []
    for cell in cells:
        if cell.polygon is None or cell.column_span > 1 or cell.row_span > 1:
            return None
        centres.append(sum(x for x, _ in cell.polygon) / len(cell.polygon))
    middles = []
    for _, span in columns:
        if span is None:
            return None
        middles.append((span[0] + span[1]) / 2)
    # best[k]: cost and choice of the cells so far when they use only the first k columns.
    best: list[tuple[float, list[int]]] = [(0.0, [])] * (len(columns) + 1)
    for centre in centres:
        following: list[tuple[float, list[int]]] = [(math.inf, [])]
        for place, middle in enumerate(middles):
            cost, choice = best[place]
            here = (cost + abs(centre - middle), [*choice, columns[place][0]])
            following.append(min(following[-1], here, key=lambda entry: entry[0]))
        best = following
    cost, choice = best[-1]
    return choice if cost < math.inf else None


def _bands(grid: Grid, boxes: dict[int, Box]) -> dict[int, Box] | None:
    """Cells as the areas nearest to the centres of their rows and columns; None when the boxes themselves can be used.

    They cannot when they are much lower than the way from one row to the next.
    """
    edges = []
    for axis in (0, 1):
        count = (grid.columns, grid.rows)[axis]
        found: dict[int, list[float]] = {}
        for index, box in boxes.items():
            place = grid.places[index]
            if (place.column_span, place.row_span)[axis] == 1:
                found.setdefault((place.column, place.row)[axis], []).append((box[axis] + box[axis + 2]) / 2)
        if len(found) < count or count < 2:
            return None
        centres = [median(found[number]) for number in range(count)]
        between = [(before + after) / 2 for before, after in pairwise(centres)]
        edges.append([2 * centres[0] - between[0], *between, 2 * centres[-1] - between[-1]])
    pitch = median(after - before for before, after in pairwise(edges[1]))
    heights = [boxes[index][3] - boxes[index][1] for index in boxes if grid.places[index].row_span == 1]
    if median(heights) >= _SHRUNK * pitch or any(after <= before for side in edges for before, after in pairwise(side)):
        return None
    return {
        index: (
            edges[0][place.column],
            edges[1][place.row],
            edges[0][place.column + place.column_span],
            edges[1][place.row + place.row_span],
        )
        for index, place in enumerate(grid.places)
    }


def _pieces(text: str, box: Box, cells: dict[int, Box], grid: Grid) -> list[tuple[int, str, Box]]:
    """(cell, text, box) of the parts of a line; empty when it lies in no cell."""
    area = max((box[2] - box[0]) * (box[3] - box[1]), 1e-6)
    shares = {index: share for index, cell in cells.items() if (share := _shared(box, cell) / area) > 0}
    if not shares:
        near = _nearest(box, cells)
        return [] if near is None else [(near, text, box)]
    best = max(shares, key=lambda index: shares[index])
    row = grid.places[best]
    crossed = [
        index
        for index, share in shares.items()
        if share >= _CROSSES and grid.places[index].row < row.row + row.row_span
        and row.row < grid.places[index].row + grid.places[index].row_span
        and (index == best or grid.places[index].column != row.column)
    ]  # fmt: skip
    if len(crossed) > 1 and (cut := _cut(text, box, sorted(crossed, key=lambda index: cells[index][0]), cells)):
        return cut
    return [(best, text, box)]


def _nearest(box: Box, cells: dict[int, Box]) -> int | None:
    reach = _REACH * min(box[3] - box[1], box[2] - box[0])
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    near = [
        index
        for index, cell in cells.items()
        if cell[0] - reach <= box[2] and box[0] <= cell[2] + reach
        and cell[1] - reach <= box[3] and box[1] <= cell[3] + reach
    ]  # fmt: skip

    def distance(index: int) -> float:
        cell = cells[index]
        return math.dist(middle, ((cell[0] + cell[2]) / 2, (cell[1] + cell[3]) / 2))

    return min(near, key=distance, default=None)


def _cut(text: str, box: Box, row: Sequence[int], cells: dict[int, Box]) -> list[tuple[int, str, Box]] | None:
    """The line cut at blanks into one part per cell; None when it has too few blanks."""
    words = text.split()
    if len(words) < len(row):
        return None
    # Where each blank lies: the middle of what the words on its left and those on its right leave free, as the blank
    # between two cells is wider than the others. Wide characters count twice.
    lengths = [sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in word) + 1 for word in words]
    letter_px = min((box[2] - box[0]) / sum(lengths), _LETTER_WIDTH * (box[3] - box[1]))
    passed = list(accumulate(lengths))
    gaps = [(box[0] + before * letter_px + box[2] - (passed[-1] - before) * letter_px) / 2 for before in passed[:-1]]
    parts: list[tuple[int, str, Box]] = []
    begun, left = 0, box[0]
    for place, (index, following) in enumerate(pairwise(row)):
        border = (cells[index][2] + cells[following][0]) / 2
        last = len(words) - (len(row) - 1 - place)  # each cell further right gets a word at least
        end = min(range(begun + 1, last + 1), key=lambda count: abs(gaps[count - 1] - border))
        parts.append((index, " ".join(words[begun:end]), (left, box[1], gaps[end - 1], box[3])))
        begun, left = end, gaps[end - 1]
    parts.append((row[-1], " ".join(words[begun:]), (left, box[1], box[2], box[3])))
    return parts


def _without_phantoms(
    grid: Grid, boxes: dict[int, Box], content: dict[int, list[tuple[str, Box, float]]]
) -> tuple[Grid, list[int]]:
    """The grid without empty rows that the model sees where there are none, and the old places of its cells.

    These are a first or last row of one cell across all columns, or lower than the others: paper at a table's edge is
    taken for such. No text is lost with them, as there is none.
    """
    heights = {
        row: max(box[3] - box[1] for box in found)
        for row in range(grid.rows)
        if (found := [boxes[i] for i, p in enumerate(grid.places) if p.row == row and p.row_span == 1 and i in boxes])
    }
    usual = median(heights.values()) if heights else 0.0
    dropped = set()
    for row in {0, grid.rows - 1}:
        own = [index for index, place in enumerate(grid.places) if place.row <= row < place.row + place.row_span]
        if any(grid.places[index].row_span > 1 or content.get(index) for index in own):
            continue
        across = len(own) == 1 and grid.places[own[0]].column_span == grid.columns > 1
        if across or heights.get(row, usual) < _FLAT * usual:
            dropped.add(row)
    if not dropped or len(dropped) == grid.rows:
        return grid, list(range(len(grid.places)))
    kept = [index for index, place in enumerate(grid.places) if place.row not in dropped]
    places = tuple(
        replace(grid.places[index], row=grid.places[index].row - sum(row < grid.places[index].row for row in dropped))
        for index in kept
    )
    return replace(grid, places=places, rows=grid.rows - len(dropped)), kept


def _cell(place: Place, content: Sequence[tuple[str, Box, float]]) -> Cell:
    boxes = [box for _, box, _ in content]
    rows = [" ".join(content[index][0] for index in row) for row in order.rows(boxes)]
    letters = sum(len(text) for text, _, _ in content)
    return Cell(
        row=place.row,
        column=place.column,
        row_span=place.row_span,
        column_span=place.column_span,
        text=join_lines(rows),
        confidence=sum(len(text) * confidence for text, _, confidence in content) / letters if letters else None,
        polygon=place.polygon,
    )


def _shared(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0
