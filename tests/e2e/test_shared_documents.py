"""Every document of the shared test set is read, or refused with one typed error, within ten seconds.

The set lies beside the repository (`../shared/testdata`) or where DOCVINO_TESTDATA says; without it nothing runs here.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from docvino.errors import InputError
from docvino.inputs import open_document, read_source
from docvino.settings import ParseOptions

BESIDE = Path(__file__).parents[3] / "shared" / "testdata"
FOLDER = Path(os.environ.get("DOCVINO_TESTDATA") or BESIDE)
FILES = sorted(path for part in ("synthetic", "third_party") for path in (FOLDER / part).rglob("*") if path.is_file())
PASSWORDS = {
    "encrypted_user.pdf": "test123",
    "encrypted_rc4.pdf": "test123",
    "libreoffice-writer-password.pdf": "openpassword",
}
UNREADABLE = {
    "broken_bad_crc.png",
    "broken_empty.pdf",
    "broken_empty.png",
    "broken_no_xref.pdf",
    "broken_text.pdf",
    "broken_text.png",
    "broken_truncated.jpg",
    "broken_truncated.pdf",
    "hostile_20000x20000_1bit.png",
    "invalid.pdf",
}
NO_DOCUMENTS = {".json", ".jsonl", ".md", ".txt"}

pytestmark = pytest.mark.skipif(not FILES, reason="the shared test documents are not here")


def read(path: Path, password: str | None) -> int:
    """The number of pages read."""
    data, name = read_source(str(path))
    with open_document(data, name, ParseOptions(password=password)) as document:
        for index in document.page_indices:
            page = document.page(index)
            assert page.pixels.size > 0
            assert page.warnings == () or path.name.startswith("hostile_")
        return len(document.page_indices)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_shared_document_is_read_or_refused_with_one_error(path: Path) -> None:
    started = time.process_time()  # what else the machine does must not matter
    if path.name in UNREADABLE or path.suffix in NO_DOCUMENTS:
        with pytest.raises(InputError) as caught:
            read(path, None)
        assert path.name in str(caught.value)
        assert caught.value.fix
    else:
        assert read(path, PASSWORDS.get(path.name)) >= 1
    assert time.process_time() - started < 10


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_locked_shared_document_asks_for_its_password(name: str) -> None:
    (path,) = (path for path in FILES if path.name == name)
    with pytest.raises(InputError, match="needs a password"):
        read(path, None)
    with pytest.raises(InputError, match="password is wrong"):
        read(path, "a wrong one")
