"""Collects what the drawing needs into one folder: typefaces by name, and a list of English words.

    apt-get install fonts-dejavu-core fonts-dejavu-extra fonts-liberation fonts-wqy-microhei wamerican
    pip install "docvino[dev,finetune]" fonttools matplotlib
    python recipes/nano/assets.py build/nano/assets

| typeface | from | licence |
|---|---|---|
| DejaVu Sans, Sans Mono, Serif | Debian fonts-dejavu-core, -extra | Bitstream Vera licence, public domain |
| Liberation Sans, Serif, Mono, Narrow | Debian fonts-liberation 1.07 | GPL-2 with font exception |
| WenQuanYi Micro Hei | Debian fonts-wqy-microhei | Apache-2.0 or GPL-3 with font exception |
| Noto Sans SC, Noto Serif SC | PyPI pylopdf-fonts-zh-cn | OFL-1.1 |
| Aileron | Pillow | CC0-1.0 |
| Computer Modern, STIX, DejaVu (formulas) | matplotlib | BaKoMa, OFL-1.1, Bitstream Vera |

The words are those of Debian's wamerican (SCOWL: free to use and to copy). The Chinese files are cut down to the
characters that are drawn, so that the folder is small enough to be taken along; their outlines stay what they are.
"""

from __future__ import annotations

import shutil
import sys
from importlib import resources
from pathlib import Path

import texts

LATIN = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansCondensed", "DejaVuSansMono"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerifCondensed"),
    *("LiberationSans-Regular", "LiberationSans-Bold", "LiberationSans-Italic", "LiberationSansNarrow-Regular"),
    *("LiberationSerif-Regular", "LiberationSerif-Bold", "LiberationSerif-Italic", "LiberationMono-Regular"),
)
NOTO = ("NotoSansSC-Regular", "NotoSerifSC-Regular")
MICRO_HEI = "wqy-microhei"
WORDS = "words.txt"


def collect(out: Path, fonts: Path, words: Path) -> None:
    """Copies the typefaces found under `fonts`, a folder such as /usr/share/fonts, and the words."""
    (out / "fonts").mkdir(parents=True, exist_ok=True)
    found = {path.stem: path for path in fonts.rglob("*.tt?")}
    for name in (*LATIN, MICRO_HEI):
        if name not in found:
            raise SystemExit(f"no {name} under {fonts}; see the packages in {__file__}")
    for name in LATIN:
        shutil.copyfile(found[name], out / "fonts" / found[name].name)
    _subset(found[MICRO_HEI], out / "fonts" / f"{MICRO_HEI}.ttf")
    for name in NOTO:
        source = resources.files("pylopdf_fonts_zh_cn") / f"{name}.otf"
        with resources.as_file(source) as path:
            _subset(path, out / "fonts" / f"{name}.otf")
    shutil.copyfile(words, out / WORDS)


def _subset(source: Path, target: Path) -> None:
    from fontTools import subset

    options = subset.Options(layout_features=["kern"], notdef_outline=True, font_number=0)
    font = subset.load_font(str(source), options)
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join((*texts.ASCII, *texts.SIGNS, *texts.characters())))
    cutter.subset(font)
    subset.save_font(font, str(target), options)


if __name__ == "__main__":
    _, target, *rest = sys.argv
    where = Path(rest[0]) if rest else Path("/usr/share")
    collect(Path(target), where / "fonts", where / "dict" / "american-english")
