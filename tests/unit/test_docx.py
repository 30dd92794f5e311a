"""Facts of the Word file, read back by python-docx and as XML."""

from __future__ import annotations

import io
from typing import Any
from xml.etree import ElementTree

import docx
import pytest
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.oxml.ns import qn

from docvino.document import Block, Cell
from docvino.render.docx import column_widths, to_docx
from docvino.render.formulas import to_omml
from sample_documents import SPANNING, block, document, page, png, table

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

# They say nothing of how a formula is built.
SILENT = {"oMath", "r", "chr", "begChr", "endChr", "degHide", "supHide", "nor", "plcHide"}


def read(*blocks: Block, pictures: dict[str, bytes] | None = None) -> Any:
    return docx.Document(io.BytesIO(to_docx(document(page(*blocks)), pictures)))


def math_of(made: Any) -> list[Any]:
    return list(made.element.body.iter(f"{M}oMath"))


def test_headings_paragraphs_lists_and_captions_have_their_styles() -> None:
    found = read(
        block("doc_title", "Title"),
        block("paragraph_title", "2.1 Section"),
        block("text", "one\n\n• two"),
        block("figure_title", "Figure 1"),
        block("footer", "not shown"),
    )
    assert [(paragraph.style.name, paragraph.text) for paragraph in found.paragraphs] == [
        ("Heading 1", "Title"),
        ("Heading 3", "2.1 Section"),
        ("Normal", "one"),
        ("List Bullet", "two"),
        ("Caption", "Figure 1"),
    ]


def test_a_number_stands_at_the_right_edge_beside_its_formula() -> None:
    made = read(block("display_formula", r"\frac{a}{b}", "latex"), block("formula_number", "(1)"), block("text", "so"))
    formula, text = made.paragraphs
    assert (formula.text, text.text) == ("\t\t(1)", "so")
    assert [child.tag.rpartition("}")[2] for child in formula._p] == ["pPr", "r", "oMath", "r"]
    section = made.sections[0]
    width = section.page_width - section.left_margin - section.right_margin
    stops = [(str(stop.alignment), stop.position) for stop in formula.paragraph_format.tab_stops]
    assert stops == [("CENTER (1)", pytest.approx(width / 2, abs=700)), ("RIGHT (2)", pytest.approx(width, abs=700))]


def test_a_table_is_one_with_merged_cells() -> None:
    (found,) = read(table(spans=SPANNING)).tables
    texts = [[cell.text for cell in row.cells] for row in found.rows]
    assert texts == [["Wide", "Wide", "Tall"], ["a", "b", "Tall"]]  # a merged cell is seen from each of its places
    assert found.cell(0, 0)._tc is found.cell(0, 1)._tc
    assert found.cell(0, 2)._tc is not found.cell(0, 1)._tc


def test_two_tables_in_a_row_stay_two() -> None:
    made = read(table(["a"]), table(["b"]))
    kinds = [child.tag for child in made.element.body][:4]
    assert kinds == [qn("w:tbl"), qn("w:p"), qn("w:tbl"), qn("w:p")]


def test_a_picture_takes_its_share_of_the_width_and_has_a_text_for_the_blind() -> None:
    made = read(block("image"), block("image"), pictures={"p1-b2": png(30, 20)})
    (shape,) = made.inline_shapes
    section = made.sections[0]
    text_width = section.page_width - section.left_margin - section.right_margin
    assert shape.width == pytest.approx(text_width / 2, abs=1)
    assert shape.height == pytest.approx(shape.width * 20 / 30, abs=1)
    assert shape._inline.docPr.get("descr") == "image"


def test_a_picture_in_a_table_stands_in_its_cell_and_nowhere_else() -> None:
    cells = (Cell(row=0, column=0, text="a"), Cell(row=0, column=1, text="b", figures=("p1-b2",)))
    made = read(table(spans=cells), block("image"), pictures={"p1-b2": png()})
    assert len(list(made.tables[0].cell(0, 1)._tc.iter(qn("w:drawing")))) == 1
    assert len(made.inline_shapes) == 1


def test_lines_of_a_table_of_contents_stay_lines_of_one_paragraph() -> None:
    (paragraph,) = read(block("content", "One\t1\nTwo\t2")).paragraphs
    assert paragraph.text == "One\t1\nTwo\t2"


@pytest.mark.parametrize("text", ["第三章", "one word in a long line of Latin letters is Chinese: 章"])
def test_chinese_text_has_a_chinese_typeface(text: str) -> None:
    styles = read(block("text", text)).styles
    assert styles["Normal"].element.rPr.rFonts.get(qn("w:eastAsia")) == "SimSun"
    assert read(block("text", "three")).styles["Normal"].element.rPr is None


@pytest.mark.parametrize(
    ("width_px", "height_px", "dpi", "size_pt"),
    [
        (1190, 1684, 144, (595, 842)),
        (1684, 1190, 144, (842, 595)),
        (600, 800, None, (595, 842)),  # A4, as nobody knows
        (9000, 8000, 72, (595, 842)),  # larger than Word's largest
        (90, 80, 144, (595, 842)),
    ],
)
def test_pages_have_the_size_of_the_sources(
    width_px: int, height_px: int, dpi: float | None, size_pt: tuple[int, int]
) -> None:
    one = page(block("text", "x"), width_px=width_px, height_px=height_px, dpi=dpi)
    (section,) = docx.Document(io.BytesIO(to_docx(document(one)))).sections
    assert (section.page_width.pt, section.page_height.pt) == size_pt
    assert section.left_margin.pt + section.right_margin.pt < size_pt[0] / 2


def test_the_most_usual_size_is_that_of_all_pages() -> None:
    sizes = ((842, 595), (595, 842), (595, 842))
    pages = [page(index=n, width_px=w, height_px=h, dpi=72) for n, (w, h) in enumerate(sizes)]
    (section,) = docx.Document(io.BytesIO(to_docx(document(*pages)))).sections
    assert (section.page_width.pt, section.page_height.pt) == (595, 842)


def test_a_caption_is_centred_and_stays_with_its_picture_or_table() -> None:
    blocks = (block("image"), block("figure_title", "Figure 1"), block("table_caption", "Table 1"), table(["a"]))
    picture, figure, caption, *_ = read(*blocks, pictures={"p1-b1": png()}).paragraphs
    assert [one.paragraph_format.keep_with_next for one in (picture, figure, caption)] == [True, None, True]
    assert caption.style.paragraph_format.alignment == WD_ALIGN_PARAGRAPH.CENTER


def test_columns_are_as_wide_as_their_texts_and_together_as_the_page_at_most() -> None:
    cells = [Cell(row=0, column=0, text="No."), Cell(row=0, column=1, text="旧档案的整理办法" * 9)]
    cells += [Cell(row=0, column=2, text="a rather long remark " * 9), Cell(row=0, column=3, text="")]
    narrow, chinese, latin, empty = column_widths(cells, 4, 5_000_000)
    assert narrow + chinese + latin + empty <= 5_000_000
    assert 0 < empty < narrow < 600_000
    assert chinese == pytest.approx(latin, abs=1)  # what is left they share alike
    assert sum(column_widths(cells[:1], 1, 5_000_000)) == narrow


def test_rows_are_not_parted_by_a_page() -> None:
    (found,) = read(table(["a"], ["b"])).tables
    assert len(list(found._tbl.iter(qn("w:cantSplit")))) == 2


def test_characters_that_xml_forbids_are_left_out() -> None:
    assert read(block("text", "a\x00b\x1bc\ud800"), table(["x\x07"])).paragraphs[0].text == "abc"


def test_the_file_names_its_source() -> None:
    properties = read().core_properties
    assert (properties.title, properties.author) == ("scan.png", "docvino")


# ---- formulas


def test_formulas_in_text_tables_and_blocks_are_formulas_of_word() -> None:
    made = read(block("text", r"so \(a\) is"), table([r"\(b\)"]), block("formula", "c\n\nd", "latex"))
    assert ["".join(found.itertext()) for found in math_of(made)] == ["a", "b", "c", "d"]
    assert made.paragraphs[0].text == "so  is"  # the formula stands between, and is no run of text
    assert len(list(made.element.body.iter(f"{M}oMathPara"))) == 2


def test_a_formula_that_cannot_be_read_stands_there_in_latex() -> None:
    made = read(block("formula", "x^a^b", "latex"))
    assert math_of(made) == []
    assert made.paragraphs[0].text == "x^a^b"


@pytest.mark.parametrize(
    ("latex", "built_of"),
    [
        (r"\frac{a}{b}", "f num a den b"),
        (r"\binom{n}{k}", "( f noBar num n den k )"),
        (r"\sqrt{x}", "rad deg e x"),
        (r"\sqrt[3]{x}", "rad deg 3 e x"),
        ("x_1^2", "sSubSup e x sub 1 sup 2"),
        ("x^{a+b}", "sSup e x sup a + b"),
        (r"\hat{x}", "acc e x"),
        (r"\overline{ab}", "bar top e a b"),
        (r"\underbrace{a}", "groupChr bot e a"),
        (r"\left( a \right]", "d e a"),
        (r"\begin{matrix}1&2\\3&4\end{matrix}", "m mr e 1 e 2 mr e 3 e 4"),
        (r"\begin{cases}1&2\end{cases}", "d e m mr e 1 e 2"),
        (r"\sum_{i}^n i", "nary undOvr sub i sup n e i"),
        (r"\prod_i x", "nary undOvr sub i sup e x"),
        (r"\boxed{a}", "borderBox e a"),
        (r"\lim_{x} y", "func fName limLow e lim lim x e y"),
        (r"\begin{pmatrix}1\end{pmatrix}", "d e m mr e 1"),
        (r"\begin{aligned}a&=b\\&=c\end{aligned}", "m mr e a e = b mr e e = c"),
        (r"\overset{a}{=}", "limUpp e = lim a"),
    ],
)
def test_a_formula_is_built_as_word_builds_it(latex: str, built_of: str) -> None:
    parts = []
    for element in ElementTree.fromstring(to_omml(latex, display=True) or "").iter():
        name = element.tag.removeprefix(M)
        if name == "t":
            parts.append((element.text or "").strip())
        elif name in ("type", "pos", "limLoc"):
            parts.append(element.get(f"{M}val") or "")
        elif not name.endswith("Pr") and name not in SILENT:
            parts.append(name)
    assert " ".join(part for part in parts if part) == built_of


def test_a_fraction_without_a_bar_and_a_brace_without_a_partner_are_said() -> None:
    assert 'm:val="noBar"' in (to_omml(r"\binom{n}{k}") or "")
    assert '<m:endChr m:val="" />' in (to_omml(r"\begin{cases}1\end{cases}") or "")
