"""The process that writes one format of a document: `python -m docvino.serve.write_child FOLDER FORMAT MIB`.

The folder is one of `jobs`; the document's source is opened here, so what it may break is this process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import cast

from docvino.document import Document
from docvino.errors import DocvinoError
from docvino.inputs import open_document
from docvino.outputs import Finished, Format, write_atomically, write_outputs
from docvino.serve.limits import limit_memory
from docvino.settings import ParseOptions

PASSWORD = "DOCVINO_SOURCE_PASSWORD"
OPTIONS = "DOCVINO_SOURCE_OPTIONS"


def main(folder: Path, name: Format, memory_mib: int) -> None:
    """Writes the format's files into the folder, or the cause of a failure into `problem.json`."""
    limit_memory(memory_mib)
    document = Document.model_validate_json((folder / "document.json").read_bytes())
    options = ParseOptions(**json.loads(os.environ[OPTIONS]), password=os.environ.get(PASSWORD))
    try:
        with open_document((folder / "source").read_bytes(), document.source.name, options) as source:
            problem = write_outputs(Finished(document, folder, source, options.password), [name]).get(name)
    except DocvinoError as error:
        problem = error
    if problem is not None:
        said = {
            "message": str(problem).replace(str(folder), "its folder"),
            "fix": problem.fix,
            "status": problem.http_status,
        }
        write_atomically(folder / "problem.json", json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), cast(Format, sys.argv[2]), int(sys.argv[3]))
