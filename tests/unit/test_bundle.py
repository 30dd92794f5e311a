"""Facts of bundles: what a folder needs to be one, and that it is replaced whole or not at all."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from docvino.bundle import (
    CHARACTERS,
    GRAPH,
    MANIFEST,
    MANIFEST_VERSION,
    Bundle,
    Manifest,
    SourcePin,
    building,
    bundle_folder,
    file_sha256,
    list_bundles,
    open_bundle,
    remove_bundle,
)
from docvino.errors import BundleError

FIX = "docvino fetch toy && docvino convert toy --precision int8"


def make(data_dir: Path, spec: str = "toy", **changes: Any) -> Path:
    """A bundle at int8 with a graph and characters."""
    folder = bundle_folder(data_dir, spec, "int8")
    folder.mkdir(parents=True)
    (folder / GRAPH).write_bytes(b"<net/>")
    (folder / CHARACTERS).write_bytes("a\r\n\u2028\n版".encode())
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        spec=spec,
        precision="int8",
        source=SourcePin(package="p", version="1", member="m.onnx", sha256="0"),
        docvino="0.1.0",
        openvino="2026.4",
        inputs=(),
        outputs=(),
        files={name: file_sha256(folder / name) for name in (GRAPH, CHARACTERS)},
    )
    (folder / MANIFEST).write_text(manifest.model_copy(update=changes).model_dump_json(), encoding="utf-8")
    return folder


def refusal(folder: Path) -> BundleError:
    with pytest.raises(BundleError) as caught:
        open_bundle(folder)
    return caught.value


def test_a_bundle_lies_under_its_model_and_precision(tmp_path: Path) -> None:
    assert bundle_folder(tmp_path, "pp-ocrv6-small-det", "fp16") == tmp_path / "bundles" / "pp-ocrv6-small-det-fp16"


def test_a_whole_bundle_opens_and_its_files_match(tmp_path: Path) -> None:
    bundle = open_bundle(make(tmp_path))
    bundle.check_files()
    assert (bundle.manifest.spec, bundle.graph.read_bytes()) == ("toy", b"<net/>")
    assert bundle.manifest_sha256 == file_sha256(bundle.folder / MANIFEST)


def test_characters_are_read_without_changing_a_newline(tmp_path: Path) -> None:
    assert open_bundle(make(tmp_path)).characters() == "a\r\n\u2028\n版"


def test_a_model_without_characters_says_so(tmp_path: Path) -> None:
    bundle = open_bundle(make(tmp_path))
    (bundle.folder / CHARACTERS).unlink()
    with pytest.raises(BundleError, match=r"toy-int8 has no characters\.txt") as caught:
        bundle.characters()
    assert caught.value.fix == "docvino convert toy --precision int8 --force"


def test_a_missing_bundle_is_answered_with_the_commands_that_make_it(tmp_path: Path) -> None:
    error = refusal(bundle_folder(tmp_path, "toy", "int8"))
    assert (str(error), error.fix) == ("model toy is not converted at int8", FIX)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"manifest_version": 1}'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = make(tmp_path)
    (folder / MANIFEST).write_bytes(content)
    error = refusal(folder)
    assert (str(error), error.fix) == ("toy-int8/manifest.json is damaged or of another version", FIX)


def test_a_manifest_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path)
    text = (folder / MANIFEST).read_text(encoding="utf-8")
    (folder / MANIFEST).write_text('{"colour": "red",' + text[1:], encoding="utf-8")
    assert "damaged or of another version" in str(refusal(folder))


def test_a_manifest_of_another_version_is_refused_by_number(tmp_path: Path) -> None:
    error = refusal(make(tmp_path, manifest_version=99))
    assert str(error) == f"toy-int8 has manifest version 99, this docvino reads {MANIFEST_VERSION}"


def test_a_bundle_that_lacks_a_file_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / GRAPH).unlink()
    assert str(refusal(folder)) == "toy-int8 lacks model.xml"


@pytest.mark.parametrize("name", [GRAPH, CHARACTERS])
def test_a_changed_file_opens_and_is_found_by_its_sha256(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(BundleError, match=f"{name} of toy-int8 is not the file that was converted") as caught:
        open_bundle(folder).check_files()
    assert caught.value.fix == "docvino convert toy --precision int8 --force"


def test_a_file_that_vanishes_after_opening_is_found(tmp_path: Path) -> None:
    bundle = open_bundle(make(tmp_path))
    bundle.graph.unlink()
    with pytest.raises(BundleError, match=r"toy-int8 lacks model\.xml"):
        bundle.check_files()


def test_the_list_holds_whole_and_damaged_bundles_but_no_half_built_ones(tmp_path: Path) -> None:
    make(tmp_path, "good")
    (make(tmp_path, "bad") / GRAPH).unlink()
    (tmp_path / "bundles" / ".good-int8-x1").mkdir()
    bad, good = list_bundles(tmp_path)
    assert isinstance(bad, BundleError)
    assert isinstance(good, Bundle)
    assert good.manifest.spec == "good"


def test_without_a_data_folder_there_are_no_bundles(tmp_path: Path) -> None:
    assert list_bundles(tmp_path / "nowhere") == []


def test_a_removed_bundle_is_gone_and_cannot_be_removed_again(tmp_path: Path) -> None:
    folder = make(tmp_path)
    remove_bundle(folder)
    assert not folder.exists()
    with pytest.raises(BundleError, match="there is no bundle toy-int8"):
        remove_bundle(folder)


def test_a_built_folder_appears_whole(tmp_path: Path) -> None:
    folder = tmp_path / "bundles" / "toy-int8"
    with building(folder) as workspace:
        (workspace / GRAPH).write_bytes(b"1")
        assert workspace.parent == folder.parent
        assert not folder.exists()
    assert [path.name for path in folder.iterdir()] == [GRAPH]
    assert [path.name for path in folder.parent.iterdir()] == ["toy-int8"]


def test_a_built_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    folder = make(tmp_path)
    with building(folder) as workspace:
        (workspace / "new").write_bytes(b"1")
        assert (folder / GRAPH).exists()
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert [path.name for path in folder.parent.iterdir()] == ["toy-int8"]


def build_badly(folder: Path) -> None:
    with building(folder) as workspace:
        (workspace / "half").write_bytes(b"1")
        raise ValueError("no more")


def test_a_failure_while_building_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "bundles" / "toy-int8"
    with pytest.raises(ValueError, match="no more"):
        build_badly(folder)
    assert list(folder.parent.iterdir()) == []


def test_a_failure_while_building_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match="no more"):
        build_badly(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["toy-int8"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such rights")
def test_others_may_read_a_built_folder(tmp_path: Path) -> None:
    with building(tmp_path / "toy-int8"):
        pass
    assert stat.S_IMODE((tmp_path / "toy-int8").stat().st_mode) == 0o755


def test_a_place_that_cannot_be_written_is_a_bundle_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BundleError, match="cannot write to") as caught, building(tmp_path / "file" / "toy-int8"):
        pass
    assert "--data-dir" in caught.value.fix


def test_the_sha256_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert file_sha256(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
