"""What the drawn crops say: words, numbers, Chinese phrases. Words of every 20th hash are kept for evaluation."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
ASCII = tuple(map(chr, range(32, 127)))
# Signs beyond ASCII: of Chinese text, and those that European documents are full of.
SIGNS = tuple("，。、：；？！（）《》“”‘’…—￥·【】～％－＋×÷±°€£§•→≤≥")
Script = Literal["en", "zh"]
SCRIPTS: tuple[Script, ...] = ("en", "zh")
_HELD_OUT = 20


@cache
def characters() -> tuple[str, ...]:
    """The Chinese characters that nano knows: 940 of GB 2312's first level, in code point order."""
    return tuple((HERE / "characters.txt").read_text(encoding="utf-8").replace("\n", ""))


@cache
def phrases() -> tuple[str, ...]:
    return tuple((HERE / "phrases.txt").read_text(encoding="utf-8").split())


def split_words(words: Path) -> tuple[list[str], list[str]]:
    """Words for training, and those kept for evaluation, of a list with one word a line."""
    listed = [word for word in words.read_text(encoding="utf-8").split() if word.isascii() and "'" not in word]
    kept = [word for word in listed if zlib.crc32(word.encode()) % _HELD_OUT == 0]
    return sorted(set(listed) - set(kept)), kept


@dataclass(frozen=True)
class Texts:
    """Makes lines out of `words`; all chance comes from the dice given."""

    words: list[str]

    def line(self, dice: random.Random, script: Script, length: int) -> str:
        """One line of at most `length` characters, without white space at its ends."""
        if script == "en":
            text = self._english(dice, length)
        elif dice.random() < 0.25:
            text = self._mixed(dice, length)
        else:
            text = self._chinese(dice, length)
        return text[:length].strip() or dice.choice("abcdeh123")

    def cell(self, dice: random.Random) -> str:
        """What a table's cell holds; empty one time in eight."""
        kind = dice.random()
        if kind < 0.12:
            return ""
        if kind < 0.5:
            return _number(dice)
        if kind < 0.78:
            return _cased(dice, dice.choice(self.words))[:12]
        return self._chinese(dice, dice.randint(1, 6)).strip("，。、：；")

    def _english(self, dice: random.Random, length: int) -> str:
        text = self._token(dice)
        while len(text) < length:
            text += " " + self._token(dice)
        return text

    def _token(self, dice: random.Random) -> str:
        kind = dice.random()
        if kind < 0.64:
            return _cased(dice, dice.choice(self.words))
        if kind < 0.82:
            return _number(dice)
        if kind < 0.86:
            return "".join(dice.choice(ASCII[1:]) for _ in range(dice.randint(1, 7)))
        if kind < 0.88:
            return self._name(dice)
        word = dice.choice(self.words)
        return dice.choice(
            (
                "({})",
                '"{}"',
                "{},",
                "{},",
                "{}.",
                "{}.",
                "{}:",
                "{};",
                "{}?",
                "{}!",
                "{}'s",
                "[{}]",
                "#{}",
                "{}-",
                "“{}”",
            )
        ).format(word)

    def _name(self, dice: random.Random) -> str:
        """What has no spaces and stops inside: addresses, files, versions, numbers of things."""
        one, other = dice.choice(self.words), dice.choice(self.words)
        end = dice.choice(("org", "com", "net", "cn", "pdf", "txt", "sh", "py", "toml"))
        number = dice.randrange(10_000)
        forms = (f"{one}@{other}.{end}", f"{one}.{end}", f"www.{one}.{end}", f"v{number % 10}.{number // 100}")
        return dice.choice((*forms, f"{dice.choice('ABCDEHKNRSTX')}-{number}", f"0{number}-{dice.randrange(10**7)}"))

    def _mixed(self, dice: random.Random, length: int) -> str:
        """Chinese with English words and numbers in it, most of them between spaces."""
        text = ""
        while len(text) < length:
            text += self._chinese(dice, dice.randint(1, 8))[: dice.randint(1, 12)]
            english = " ".join(self._token(dice) for _ in range(dice.choice((1, 1, 1, 2, 3))))
            text += f" {english} " if dice.random() < 0.7 else english
        return text

    def _chinese(self, dice: random.Random, length: int) -> str:
        text = ""
        while len(text) < length:
            kind = dice.random()
            if kind < 0.5:
                text += "".join(dice.choice(characters()) for _ in range(dice.randint(2, 12)))
            elif kind < 0.85:
                phrase = dice.choice(phrases())
                begin = dice.randrange(len(phrase)) if dice.random() < 0.5 else 0
                text += phrase[begin:]
            elif kind < 0.95:
                text += _number(dice)
            else:
                text += dice.choice(self.words)
            text += (
                dice.choice(SIGNS) if dice.random() < 0.12 else dice.choice("，。、：；（）") * (dice.random() < 0.4)
            )
        return text


def _cased(dice: random.Random, word: str) -> str:
    kind = dice.random()
    return word if kind < 0.7 else word.capitalize() if kind < 0.87 else word.upper()


def _number(dice: random.Random) -> str:
    kind = dice.random()
    if kind < 0.4:
        return str(dice.randrange(10 ** dice.randint(1, 7)))
    if kind < 0.6:
        return f"{dice.uniform(0, 10 ** dice.randint(1, 5)):.{dice.randint(1, 3)}f}"
    if kind < 0.72:
        return f"{dice.randint(1900, 2039)}-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d}"
    if kind < 0.8:
        return f"{dice.randrange(10**6):,}.{dice.randrange(100):02d}"
    if kind < 0.86:
        return f"{dice.randrange(100)}%"
    if kind < 0.9:
        return f"{dice.randint(0, 23):02d}:{dice.randint(0, 59):02d}"
    return dice.choice(
        ("{}", "${}", "€{}", "£{}", "￥{}", "No. {}", "+{}", "-{}", "{}°", "{}/12", "{}×{}", "— {} —")
    ).format(dice.randrange(2000), dice.randrange(100))
