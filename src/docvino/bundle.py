"""A bundle: one converted model in one folder that explains and checks itself.

model.xml, model.bin   OpenVINO IR
characters.txt         text recognition only: one character per line, by class
golden.npz             inputs and reference outputs (see `docvino.golden`)
manifest.json          what it was made from, with what, and the sha256 of each file
verify.json            what the last verification on this machine measured

A vision-language model has three graphs instead of one, and further files:

vision.xml, embed.xml, decoder.xml   each with its .bin
tokenizer.json                       as it came with the weights
facts.json                           sizes, pixel rules, token ids, prompts (see `docvino.specs.vlm`)
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from docvino.errors import BundleError
from docvino.settings import RuntimeConfig, WeightPrecision
from docvino.specs import VLM_PRESETS, how_to_get
from docvino.specs.vlm import VlmFacts

MANIFEST_VERSION = 1
GRAPH = "model.xml"
CHARACTERS = "characters.txt"
GOLDEN = "golden.npz"
MANIFEST = "manifest.json"
VERIFICATION = "verify.json"
TOKENIZER = "tokenizer.json"
FACTS = "facts.json"
VLM_PARTS = ("vision", "embed", "decoder")


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourcePin(Strict):
    package: str
    version: str
    member: str
    sha256: str


class Tensor(Strict):
    """`shape` as OpenVINO prints it, e.g. [?,3,48,?]."""

    name: str
    dtype: str
    shape: str


class CommonManifest(Strict):
    """What every manifest says. `files` are sha256 sums by name."""

    manifest_version: int
    spec: str
    precision: WeightPrecision
    docvino: str
    openvino: str
    files: dict[str, str]


class Manifest(CommonManifest):
    source: SourcePin
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class GraphContract(Strict):
    """One graph of several. `weights` are bytes of constants by stored format."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: dict[str, int]


class VlmManifest(CommonManifest):
    """`sources` are sha256 sums of the files it was made from, `unused` the tensors in them that no graph needs."""

    kind: Literal["vlm"]
    sources: dict[str, str]
    unused: tuple[str, ...]
    graphs: dict[str, GraphContract]


M = TypeVar("M", bound=CommonManifest, covariant=True)
K = TypeVar("K", bound=CommonManifest)


@dataclass(frozen=True)
class Opened(Generic[M]):
    """A bundle of either kind."""

    folder: Path
    manifest: M
    manifest_sha256: str

    def check_files(self) -> None:
        """Compares the sha256 of every file with the manifest.

        Raises: BundleError that names the first file that is missing or differs.
        """
        for name, wanted in self.manifest.files.items():
            path = self.folder / name
            if not path.is_file():
                raise BundleError(f"{self.folder.name} lacks {name}", fix=_convert_again(self.manifest))
            if file_sha256(path) != wanted:
                raise BundleError(
                    f"{name} of {self.folder.name} is not the file that was converted (sha256 differs)",
                    fix=_convert_again(self.manifest),
                )


@dataclass(frozen=True)
class Bundle(Opened[Manifest]):
    @property
    def graph(self) -> Path:
        return self.folder / GRAPH

    @property
    def golden(self) -> Path:
        return self.folder / GOLDEN

    def characters(self) -> str:
        """The text of characters.txt.

        Raises: BundleError when the model has none.
        """
        try:
            return (self.folder / CHARACTERS).read_bytes().decode()  # bytes: no newline may change
        except OSError as error:
            raise BundleError(f"{self.folder.name} has no {CHARACTERS}", fix=_convert_again(self.manifest)) from error


@dataclass(frozen=True)
class VlmBundle(Opened[VlmManifest]):
    """A vision-language model: its graphs are `part("vision")`, `part("embed")` and `part("decoder")`."""

    facts: VlmFacts

    def part(self, name: str) -> Path:
        return self.folder / f"{name}.xml"

    @property
    def tokenizer(self) -> Path:
        return self.folder / TOKENIZER

    @property
    def golden(self) -> Path:
        return self.folder / GOLDEN


def bundle_folder(data_dir: Path, spec: str, precision: str) -> Path:
    return data_dir / "bundles" / f"{spec}-{precision}"


def open_bundle(folder: Path, *, name: str | None = None) -> Bundle:
    """Reads and checks the manifest of a model with one graph; `check_files` is left to verification.

    name   what the folder is going to be called, while it is still being made

    Raises: BundleError when the folder is missing, has no manifest, or was made by another manifest version.
    """
    manifest, digest = _read_manifest(folder, Manifest, name or folder.name)
    return Bundle(folder, manifest, digest)


def open_vlm_bundle(folder: Path, *, name: str | None = None) -> VlmBundle:
    """Reads and checks the manifest and the facts of a vision-language model.

    Raises: as `open_bundle`.
    """
    manifest, digest = _read_manifest(folder, VlmManifest, name or folder.name)
    try:
        facts = VlmFacts.model_validate_json((folder / FACTS).read_bytes())
    except (OSError, ValidationError) as error:
        raise BundleError(f"{folder.name}/{FACTS} is damaged", fix=_convert_again(manifest)) from error
    return VlmBundle(folder, manifest, digest, facts)


def converted_at(bundles: Path, spec: str) -> list[str]:
    """The precisions at which the folder of all bundles has the model, the largest first."""
    return [name for name in get_args(WeightPrecision) if (bundles / f"{spec}-{name}" / MANIFEST).is_file()]


def use_other(name: str, precision: str, other: str) -> str:
    """What to do about a preset that is not converted at one precision but at another."""
    return f"add --precision {other}, or docvino convert {name} --precision {precision}"


def is_vlm_bundle(folder: Path) -> bool:
    """Whether the folder holds a vision-language model; what is wrong with it is for `open_vlm_bundle` to say."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("kind") == "vlm"


def vlm_folder(runtime: RuntimeConfig) -> Path | None:
    """Where the vision-language model of `runtime.preset` is, or has to come; None for presets of line models.

    The name of any converted vision-language model is a preset, too.
    """
    folder = bundle_folder(runtime.data_dir, runtime.preset, runtime.precision)
    return folder if runtime.preset in VLM_PRESETS or is_vlm_bundle(folder) else None


def _read_manifest(folder: Path, kind: type[K], name: str) -> tuple[K, str]:
    spec, _, precision = name.rpartition("-")
    again = how_to_get(spec, precision)
    try:
        raw = (folder / MANIFEST).read_bytes()
    except OSError as error:
        cause = f"model {spec} is not converted at {precision}"
        if kind is VlmManifest and (others := converted_at(folder.parent, spec)):
            raise BundleError(
                f"{cause}, but at {', '.join(others)}", fix=use_other(spec, precision, others[-1])
            ) from error
        raise BundleError(cause, fix=again) from error
    try:
        manifest = kind.model_validate_json(raw)
    except ValidationError as error:
        raise BundleError(f"{name}/{MANIFEST} is damaged or of another version", fix=again) from error
    if manifest.manifest_version != MANIFEST_VERSION:
        raise BundleError(
            f"{name} has manifest version {manifest.manifest_version}, this docvino reads {MANIFEST_VERSION}",
            fix=again,
        )
    if name != f"{manifest.spec}-{manifest.precision}":
        raise BundleError(f"{name} holds {manifest.spec} at {manifest.precision}", fix=again)
    missing = [file for file in manifest.files if not (folder / file).is_file()]
    if missing:
        raise BundleError(f"{name} lacks {', '.join(missing)}", fix=again)
    return manifest, hashlib.sha256(raw).hexdigest()


def list_bundles(data_dir: Path) -> list[Bundle | VlmBundle | BundleError]:
    """Every bundle under the data directory; one that cannot be opened is listed as its error."""
    found: list[Bundle | VlmBundle | BundleError] = []
    for folder in sorted((data_dir / "bundles").glob("[!.]*")):
        try:
            found.append(open_vlm_bundle(folder) if is_vlm_bundle(folder) else open_bundle(folder))
        except BundleError as error:
            found.append(error)
    return found


def remove_bundle(folder: Path) -> None:
    """Raises: BundleError when there is none, or it cannot be deleted."""
    if not folder.is_dir():
        raise BundleError(f"there is no bundle {folder.name}", fix="`docvino models list` shows those that are there")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise BundleError(f"cannot remove {folder.name}: {error.strerror}", fix="close programs that use it") from error


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place, whole, when the block ends without an error."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        workspace = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise BundleError(
            f"cannot write to {folder.parent}: {error.strerror}", fix="set --data-dir to a folder you may write"
        ) from error
    try:
        yield workspace
        workspace.chmod(0o755)  # mkdtemp makes it private
        if folder.exists():
            shutil.rmtree(folder)
        workspace.replace(folder)
    except OSError as error:
        raise BundleError(
            f"cannot write {folder.name}: {error.strerror or error}", fix="free some space, close programs that use it"
        ) from error
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _convert_again(manifest: CommonManifest) -> str:
    return f"docvino convert {manifest.spec} --precision {manifest.precision} --force"
