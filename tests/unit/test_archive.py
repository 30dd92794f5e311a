"""Facts of models in one file: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import io
import json
import shutil
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docvino import archive
from docvino.archive import INDEX, Archive, export_models, import_models
from docvino.bundle import (
    CHARACTERS,
    GRAPH,
    MANIFEST,
    MANIFEST_VERSION,
    VERIFICATION,
    Manifest,
    SourcePin,
    bundle_folder,
    file_sha256,
    open_bundle,
)
from docvino.errors import BundleError
from docvino.settings import RuntimeConfig
from docvino.specs import MODELS
from docvino.specs.model import ModelSpec

DET, REC = MODELS["pp-ocrv6-small-det"], MODELS["pp-ocrv6-small-rec"]
CONTENT = {GRAPH: b"<net/>" * 200, CHARACTERS: "版面".encode()}


def make(data_dir: Path, spec: ModelSpec[Any] = DET, content: dict[str, bytes] = CONTENT, **changes: Any) -> Path:
    folder = bundle_folder(data_dir, spec.name, "int8")
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        spec=spec.name,
        precision="int8",
        source=SourcePin(package="p", version="1", member="m.onnx", sha256="0"),
        docvino="0.1.0",
        openvino="2026.4",
        inputs=(),
        outputs=(),
        files={name: file_sha256(folder / name) for name in content},
    )
    (folder / MANIFEST).write_text(manifest.model_copy(update=changes).model_dump_json(), encoding="utf-8")
    (folder / VERIFICATION).write_text("[]")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> RuntimeConfig:
    """A machine with two models."""
    make(tmp_path / "here", DET)
    make(tmp_path / "here", REC)
    return RuntimeConfig(data_dir=tmp_path / "here", precision="int8")


@pytest.fixture
def there(tmp_path: Path) -> RuntimeConfig:
    """A machine with none."""
    return RuntimeConfig(data_dir=tmp_path / "there")


@pytest.fixture
def packed(here: RuntimeConfig, tmp_path: Path) -> Path:
    return export_models([DET, REC], here, tmp_path / "models.tar").path


def refusal(path: Path, runtime: RuntimeConfig, *, force: bool = False) -> BundleError:
    """The error of an import that must fail, and leave nothing behind."""
    before = sorted(runtime.data_dir.rglob("*"))
    with pytest.raises(BundleError) as caught:
        import_models(path, runtime, force=force)
    assert caught.value.fix
    assert [found for found in sorted(runtime.data_dir.rglob("*")) if found.name != "bundles"] == [
        found for found in before if found.name != "bundles"
    ]
    return caught.value


Members = list[tuple[tarfile.TarInfo, bytes]]


def rewrite(path: Path, change: Callable[[Members], Any], **options: Any) -> Path:
    """The archive again, with changed members."""
    with tarfile.open(path) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    changed = change(members)
    members = changed if isinstance(changed, list) else members
    out = path.with_name("changed.tar")
    with tarfile.open(out, **{"mode": "w", "format": tarfile.USTAR_FORMAT, **options}) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out


def edit_index(change: Callable[[dict[str, Any]], None]) -> Callable[[Members], None]:
    def edit(members: Members) -> None:
        index = json.loads(members[0][1])
        change(index)
        text = json.dumps(index).encode()
        members[0][0].size = len(text)
        members[0] = (members[0][0], text)

    return edit


def extra(name: str, data: bytes = b"x", **facts: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, data


# There and back


def test_what_is_exported_is_imported_byte_for_byte(packed: Path, there: RuntimeConfig, here: RuntimeConfig) -> None:
    said: list[str] = []
    found = import_models(packed, there, report=said.append)
    assert found == Archive(packed, ("pp-ocrv6-small-det-int8", "pp-ocrv6-small-rec-int8"), packed.stat().st_size)
    for spec in (DET, REC):
        bundle = open_bundle(bundle_folder(there.data_dir, spec.name, "int8"))
        bundle.check_files()
        original = bundle_folder(here.data_dir, spec.name, "int8")
        assert sorted(path.name for path in bundle.folder.iterdir()) == sorted([*CONTENT, MANIFEST])
        for path in bundle.folder.iterdir():
            assert path.read_bytes() == (original / path.name).read_bytes()
    assert said == ["pp-ocrv6-small-det-int8: 0.0 MB, checked", "pp-ocrv6-small-rec-int8: 0.0 MB, checked"]
    assert sorted(path.name for path in (there.data_dir / "bundles").iterdir()) == list(found.bundles)


def test_the_same_models_give_the_same_bytes(packed: Path, here: RuntimeConfig, tmp_path: Path) -> None:
    (bundle_folder(here.data_dir, DET.name, "int8") / VERIFICATION).write_text("another machine")
    again = export_models([REC, DET], here, tmp_path / "again.tar").path
    assert again.read_bytes() == packed.read_bytes()


def test_the_file_is_a_plain_tar_that_any_tar_reads(packed: Path) -> None:
    with tarfile.open(packed, "r:") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == [
        INDEX,
        *(f"bundles/{spec.name}-int8/{name}" for spec in (DET, REC) for name in sorted([*CONTENT, MANIFEST])),
    ]
    for member in members:
        assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
        assert member.isreg()


def test_import_needs_no_network(packed: Path, there: RuntimeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_a, **_o: pytest.fail("a socket was opened"))
    import_models(packed, there.model_copy(update={"offline": True}))


def test_a_bundle_that_is_there_already_is_left_alone(packed: Path, here: RuntimeConfig) -> None:
    folder = bundle_folder(here.data_dir, DET.name, "int8")
    said: list[str] = []
    import_models(packed, here, report=said.append)
    assert (folder / VERIFICATION).is_file()  # not replaced
    assert said == [f"{spec.name}-int8: is there already" for spec in (DET, REC)]


def test_another_bundle_is_replaced_only_by_force(packed: Path, there: RuntimeConfig) -> None:
    folder = make(there.data_dir, DET, {GRAPH: b"<other/>"})
    error = refusal(packed, there)
    assert str(error) == "another pp-ocrv6-small-det-int8 is there already"
    assert "--force" in error.fix
    assert (folder / GRAPH).read_bytes() == b"<other/>"
    import_models(packed, there, force=True)
    assert (folder / GRAPH).read_bytes() == CONTENT[GRAPH]
    assert not (folder / VERIFICATION).exists()


# Export


def test_a_model_that_is_not_converted_is_told(here: RuntimeConfig, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not converted at int8"):
        export_models([MODELS["picodet-cdla"]], here, tmp_path / "x.tar")
    assert not (tmp_path / "x.tar").exists()


def test_a_damaged_bundle_is_not_exported(here: RuntimeConfig, tmp_path: Path) -> None:
    (bundle_folder(here.data_dir, DET.name, "int8") / GRAPH).write_bytes(b"<other/>")
    with pytest.raises(BundleError, match="sha256 differs"):
        export_models([DET], here, tmp_path / "x.tar")


@pytest.mark.parametrize("out", ["", "nowhere/x.tar"])
def test_a_file_that_cannot_be_written_is_told(here: RuntimeConfig, tmp_path: Path, out: str) -> None:
    with pytest.raises(BundleError) as caught:
        export_models([DET], here, tmp_path / out)
    assert caught.value.fix
    assert not [path for path in tmp_path.iterdir() if ".part" in path.name]


# What is not let in


HOSTILE: dict[str, tuple[Callable[[Members], Any], str]] = {
    "a file that the index does not know": (lambda m: m.append(extra("bundles/x-int8/y")), "is not in its index"),
    "a file between": (lambda m: m.insert(2, extra("bundles/x-int8/y")), "is where its index has"),
    "a file that leads out": (lambda m: m.append(extra("../../evil")), "is not in its index"),
    "an absolute file": (lambda m: m.insert(1, extra("/etc/evil")), "is where its index has"),
    "a missing file": (lambda m: m.pop(), "it lacks bundles/pp-ocrv6-small-rec-int8/model.xml"),
    "a file twice": (lambda m: m.append(m[-1]), "is not in its index"),
    "no index": (lambda m: m.pop(0), f"does not begin with {INDEX}"),
    "an index that is not first": (lambda m: m.insert(0, m.pop()), f"does not begin with {INDEX}"),
    "a symbolic link": (
        lambda m: m.insert(1, extra("bundles/x-int8/y", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
        "is not a regular file",
    ),
    "a hard link": (
        lambda m: m.insert(1, extra("bundles/x-int8/y", b"", type=tarfile.LNKTYPE, linkname=INDEX)),
        "is not a regular file",
    ),
    "a device": (lambda m: m.insert(1, extra("null", b"", type=tarfile.CHRTYPE)), "is not a regular file"),
    "a pipe": (lambda m: m.insert(1, extra("pipe", b"", type=tarfile.FIFOTYPE)), "is not a regular file"),
    "a folder": (lambda m: m.insert(1, extra("bundles", b"", type=tarfile.DIRTYPE)), "is not a regular file"),
    "a sparse file": (lambda m: m.insert(1, extra("hole", b"", type=tarfile.GNUTYPE_SPARSE)), "is not a regular file"),
    "changed content": (lambda m: m.__setitem__(2, (m[2][0], b"?" * m[2][0].size)), "has sha256"),
    "another size": (lambda m: m.__setitem__(-1, extra(m[-1][0].name, m[-1][1] + b"x")), "bytes, not"),
    "an index that is no JSON": (lambda m: m.__setitem__(0, extra(INDEX, b"{")), "is damaged or of another version"),
    "an index too large": (lambda m: m.__setitem__(0, extra(INDEX, b" " * (2 << 20))), "does not begin with"),
    "an unknown key": (edit_index(lambda i: i.update(colour="red")), "is damaged or of another version"),
    "another archive version": (edit_index(lambda i: i.update(archive_version=9)), "archive version 9, this docvino"),
    "another manifest version": (edit_index(lambda i: i.update(manifest_version=9)), "manifest version 9"),
    "no bundles": (edit_index(lambda i: i.update(bundles=[])), "is damaged or of another version"),
    "a bundle that leads out": (
        edit_index(lambda i: i["bundles"][0].update(spec="../../evil")),
        "'../../evil-int8' is no name",
    ),
    "a file name that leads out": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(name="../evil")),
        "'../evil' is no name",
    ),
    "a file name of Windows": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(name="..\\evil")),
        "is no name for a file",
    ),
    "a file name twice but for case": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(name="MODEL.XML")),
        "names a file twice",
    ),
    "a bundle under another name": (
        lambda m: [
            extra(info.name.replace("-det-", "-dot-"), data)
            for info, data in (edit_index(lambda i: i["bundles"][0].update(spec="pp-ocrv6-small-dot"))(m), m)[1]
        ],
        "pp-ocrv6-small-dot-int8 holds pp-ocrv6-small-det at int8",
    ),
    "a size beyond every disk": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(size_bytes=1 << 60)),
        "MB are free",
    ),
    "a size beyond the file": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(size_bytes=100_000)),
        "speaks of",
    ),
    "a size below nothing": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(size_bytes=-1)),
        "is damaged or of another version",
    ),
    "a hash that is none": (
        edit_index(lambda i: i["bundles"][0]["files"][0].update(sha256="0")),
        "is damaged or of another version",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_wrong_with_an_archive_is_told_and_nothing_of_it_appears(
    packed: Path, there: RuntimeConfig, what: str
) -> None:
    change, cause = HOSTILE[what]
    assert cause in str(refusal(rewrite(packed, change), there))


def test_nothing_appears_when_the_last_of_several_bundles_is_wrong(packed: Path, there: RuntimeConfig) -> None:
    def spoil(members: Members) -> None:
        members[-1] = (members[-1][0], b"?" * members[-1][0].size)

    assert "has sha256" in str(refusal(rewrite(packed, spoil), there))
    assert not bundle_folder(there.data_dir, DET.name, "int8").exists()


def test_a_failed_import_by_force_leaves_the_old_bundle(packed: Path, there: RuntimeConfig) -> None:
    folder = make(there.data_dir, DET, {GRAPH: b"<other/>"})
    refusal(rewrite(packed, HOSTILE["changed content"][0]), there, force=True)
    assert (folder / GRAPH).read_bytes() == b"<other/>"


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_compressed_archive_is_not_unpacked(packed: Path, there: RuntimeConfig, mode: str) -> None:
    assert "it is no plain tar file" in str(refusal(rewrite(packed, lambda _: None, mode=mode), there))


def test_extended_headers_are_not_followed(packed: Path, there: RuntimeConfig) -> None:
    def lengthen(members: Members) -> None:
        members.insert(1, extra("bundles/" + "x" * 300))

    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        assert "is not a regular file" in str(refusal(rewrite(packed, lengthen, format=form), there))


@pytest.mark.parametrize("kept", [0, 100, 512, 3000, -20_000])
def test_a_cut_archive_is_refused(packed: Path, there: RuntimeConfig, kept: int) -> None:
    cut = packed.with_name("cut.tar")
    cut.write_bytes(packed.read_bytes()[:kept])
    assert "is refused" in str(refusal(cut, there))


def test_every_changed_byte_is_noticed_or_without_meaning(packed: Path, there: RuntimeConfig) -> None:
    """Sampled: a flipped bit leads to a refusal, or to the very same bundles (padding, modes of files)."""
    data = packed.read_bytes()
    flipped = packed.with_name("flipped.tar")
    for at in range(0, len(data), 97):
        flipped.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            import_models(flipped, there)
        except BundleError:
            assert not bundle_folder(there.data_dir, DET.name, "int8").exists(), at
            continue
        for spec in (DET, REC):
            bundle = open_bundle(bundle_folder(there.data_dir, spec.name, "int8"))
            bundle.check_files()
            assert (bundle.folder / GRAPH).read_bytes() == CONTENT[GRAPH], at
        shutil.rmtree(there.data_dir)


def test_a_bundle_with_a_file_that_its_manifest_does_not_know_is_refused(
    here: RuntimeConfig, there: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bundle_folder(here.data_dir, DET.name, "int8") / "evil.so").write_bytes(b"x")
    real = archive._archived

    def with_it(bundle: Any) -> Any:
        archived = real(bundle)
        more = archive.ArchivedFile(name="evil.so", size_bytes=1, sha256=file_sha256(bundle.folder / "evil.so"))
        return archived.model_copy(update={"files": (*archived.files, more)})

    monkeypatch.setattr(archive, "_archived", with_it)
    made = export_models([DET], here, tmp_path / "x.tar").path
    assert "has files that its manifest does not know: evil.so" in str(refusal(made, there))


@pytest.mark.parametrize("content", [b"", b"PK\3\4" + bytes(2000), b"x" * 5000, bytes(10_240)])
def test_what_is_no_archive_is_refused(tmp_path: Path, there: RuntimeConfig, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    assert "x.tar is refused" in str(refusal(path, there))


@pytest.mark.parametrize("name", ["nowhere.tar", "."])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, there: RuntimeConfig, name: str) -> None:
    assert "cannot read" in str(refusal(tmp_path / name, there))


def test_a_data_folder_that_cannot_be_made_is_told(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BundleError, match="cannot write to"):
        import_models(packed, RuntimeConfig(data_dir=tmp_path / "file" / "data"))


def test_something_behind_the_end_is_refused(packed: Path, there: RuntimeConfig) -> None:
    packed.write_bytes(packed.read_bytes() + b"more")
    assert "something follows its end" in str(refusal(packed, there))
