"""The real command line, in processes of its own, on real models."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import docx
import pypdfium2
import pytest
from PIL import Image

import draw
from docvino.bundle import file_sha256
from docvino.render.json import from_json, json_schema
from docvino.settings import AFTER_READING
from models import MODELS, Command
from score import cer

CHINESE, CHINESE_TRUTH = draw.chinese_page()


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    path = tmp_path / "扫描 1 – страница.png"
    path.write_bytes(draw.png(CHINESE))
    return path


def test_parse_writes_markdown_to_standard_output_and_nothing_else(docvino: Command, scan: Path) -> None:
    done = docvino("parse", scan)
    assert done.returncode == 0, done.stderr
    assert cer(CHINESE_TRUTH.text, done.stdout.replace("# ", "").replace("\\", "")) <= 0.02
    assert done.stderr == ""


def test_parse_reads_standard_input(docvino: Command) -> None:
    done = docvino("parse", "-", "--json", stdin=draw.png(CHINESE))
    assert done.returncode == 0, done.stderr
    document = from_json(done.stdout)
    assert document.source.name == "stdin"
    assert document.pages[0].blocks[0].content == CHINESE_TRUTH.lines[0]


def test_every_format_is_written_and_its_text_found_by_other_readers(docvino: Command, tmp_path: Path) -> None:
    scan, out = tmp_path / "scan.pdf", tmp_path / "out"
    scan.write_bytes(draw.image_pdf(CHINESE, CHINESE.rotate(90, expand=True)))
    done = docvino("parse", scan, "-o", out, "--format", "md,json,html,docx,xlsx,csv,txt,pdf,res,png")
    assert done.returncode == 0, done.stderr
    texts = {
        "txt": (out / "scan/scan.txt").read_text(encoding="utf-8"),
        "docx": "\n".join(paragraph.text for paragraph in docx.Document(str(out / "scan/scan.docx")).paragraphs),
    }
    with pypdfium2.PdfDocument(out / "scan/scan.pdf") as pdf:
        texts["pdf"] = "\n".join(page.get_textpage().get_text_range() for page in pdf)
        assert [page.get_rotation() for page in pdf] == [0, 90]
    for kind, text in texts.items():
        assert cer(CHINESE_TRUTH.text + CHINESE_TRUTH.text, text) <= 0.02, kind
    assert sorted(path.name for path in (out / "scan/pages").iterdir()) == ["p1.png", "p2.png"]


def test_plain_text_goes_to_standard_output(docvino: Command, scan: Path) -> None:
    done = docvino("parse", scan, "--format", "txt")
    assert done.returncode == 0, done.stderr
    assert cer(CHINESE_TRUTH.text, done.stdout) <= 0.02


def test_a_folder_gets_one_folder_per_document_and_broken_files_cost_themselves_only(
    docvino: Command, tmp_path: Path
) -> None:
    inbox, out = tmp_path / "收件", tmp_path / "out"
    inbox.mkdir()
    for name, data in draw.broken_files().items():
        (inbox / name).write_bytes(data)
    (inbox / "good.png").write_bytes(draw.png(CHINESE))
    (inbox / "good.jpg").write_bytes(draw.jpeg(CHINESE))
    (inbox / "blank.png").write_bytes(draw.png(draw.blank()[0]))
    done = docvino("parse", inbox, "-o", out, "--json")
    assert done.returncode == 8, done.stderr
    outcomes = {Path(entry["input"]).name: entry for entry in json.loads(done.stdout)}
    assert outcomes == {Path(e["input"]).name: e for e in json.loads((out / "summary.json").read_text("utf-8"))}
    assert outcomes["good.png"]["status"] == outcomes["good.jpg"]["status"] == "ok"
    assert outcomes["blank.png"]["status"] == "empty"
    failed = {name: entry for name, entry in outcomes.items() if entry["status"] == "failed"}
    assert len(failed) >= 5
    for name, entry in failed.items():
        assert entry["exit_code"] == 6, name
        assert entry["error"]
        assert entry["fix"]
        assert "Traceback" not in done.stderr
    for name in ("good.png", "good.jpg"):
        folder = Path(outcomes[name]["folder"])
        markdown = (folder / f"{folder.name}.md").read_text("utf-8")
        assert cer(CHINESE_TRUTH.text, markdown.replace("# ", "").replace("\\", "")) <= 0.02
        document = from_json((folder / f"{folder.name}.json").read_text("utf-8"))
        assert document.source.name == name
    blank = Path(outcomes["blank.png"]["folder"])
    assert (blank / f"{blank.name}.md").read_text("utf-8") == ""


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("cut.jpg", draw.truncated(draw.jpeg(CHINESE)), "cut off"),
        ("text.pdf", b"this is no PDF\n", "not a document"),
        ("empty.png", b"", "is empty"),
        ("locked.pdf", draw.encrypted(draw.english_pdf()[0]), "needs a password"),
        ("huge.png", draw.hostile_png(), "400000000 pixels"),
    ],
)
def test_bad_input_is_two_lines_and_exit_code_6(
    docvino: Command, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    done = docvino("parse", path, timeout_s=60)
    assert done.returncode == 6
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert lines[1].startswith("  fix: ")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_page_of_200_inches_is_read_within_ten_seconds_and_one_gibibyte_above_idle(
    docvino: Command, tmp_path: Path
) -> None:
    code = (
        "import os, re, sys, time\nfrom docvino.cli import main\n\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        # Processor time over the cores: what else the machine does must not matter.
        "print(int(peak) // 1024, time.process_time() / os.cpu_count(), file=sys.stderr)\n"
    )

    def measure(name: str, data: bytes) -> tuple[int, float]:
        path = tmp_path / name
        path.write_bytes(data)
        environment = {**os.environ, "DOCVINO_DATA_DIR": str(MODELS), "DOCVINO_CACHE_DIR": str(MODELS / "cache")}
        done = subprocess.run(
            [sys.executable, "-c", code, "parse", str(path), "-o", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        peak_mib, seconds = done.stderr.splitlines()[-1].split()
        return int(peak_mib), float(seconds)

    assert docvino("verify", "pp-ocr").returncode == 0  # warms the cache of compiled models
    idle_mib, _ = measure("blank.png", draw.png(draw.blank()[0]))
    peak_mib, seconds = measure("huge.pdf", draw.hostile_pdf())
    assert peak_mib - idle_mib < 1024
    assert seconds < 10


def test_a_password_opens_a_locked_pdf_and_is_written_nowhere(docvino: Command, tmp_path: Path) -> None:
    path = tmp_path / "locked.pdf"
    path.write_bytes(draw.encrypted(draw.english_pdf()[0]))
    wrong = docvino("parse", path, "--password", "s3cret-wrong")
    assert wrong.returncode == 6
    assert "password" in wrong.stderr
    assert "s3cret-wrong" not in wrong.stderr
    right = docvino("--debug", "parse", path, "--password", draw.PASSWORD, "--pages", "1", "-o", tmp_path / "out")
    assert right.returncode == 0, right.stderr
    written = "".join(f.read_text("utf-8") for f in (tmp_path / "out").rglob("*") if f.suffix in (".json", ".md"))
    assert draw.PASSWORD not in right.stdout + right.stderr + written


def test_a_stopped_run_goes_on_and_reads_only_what_is_missing(docvino: Command, tmp_path: Path) -> None:
    path, out = tmp_path / "doc.pdf", tmp_path / "out"
    path.write_bytes(draw.image_pdf(CHINESE, draw.mixed_page()[0], draw.english_two_columns()[0]))
    assert docvino("parse", path, "-o", out).returncode == 0
    whole = from_json((out / "doc" / "doc.json").read_text("utf-8"))

    # What a run that was killed after its first page leaves behind.
    provenance = whole.provenance.decides().model_dump()
    provenance["options"] = {name: value for name, value in provenance["options"].items() if name not in AFTER_READING}
    header = json.dumps({"source": whole.source.model_dump(), "provenance": provenance}, sort_keys=True)
    first = json.dumps(
        {"page": whole.pages[0].model_dump(mode="json"), "stats": whole.stats.model_dump()}, ensure_ascii=False
    )
    (out / "doc" / "doc.json").unlink()
    marked = first.replace(CHINESE_TRUTH.lines[0], "read before")
    (out / "doc" / "doc.pages.jsonl").write_text(f'{header}\n{marked}\n{{"page": {{"page_in', encoding="utf-8")

    assert docvino("parse", path, "-o", out, "--resume").returncode == 0
    again = from_json((out / "doc" / "doc.json").read_text("utf-8"))
    assert again.pages[0].blocks[0].content == "read before"
    assert again.pages[1:] == whole.pages[1:]
    assert not (out / "doc" / "doc.pages.jsonl").exists()


def test_figures_are_saved_and_every_link_in_the_markdown_resolves(docvino: Command, tmp_path: Path) -> None:
    page = Image.new("RGB", (1000, 1300), "white")
    rows, columns = 400, 700
    photo = Image.linear_gradient("L").resize((columns, rows)).convert("RGB")
    page.paste(CHINESE.crop((0, 0, 1000, 400)), (0, 0))
    page.paste(photo, (150, 480))
    page.paste(CHINESE.crop((0, 100, 1000, 450)), (0, 920))
    path = tmp_path / "photo.png"
    path.write_bytes(draw.png(page))
    done = docvino("parse", path, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "photo"
    links = re.findall(r"!\[\w+\]\(([^)]+)\)", (folder / "photo.md").read_text("utf-8"))
    assert links == ["images/p1-b3.png"]
    with Image.open(io.BytesIO((folder / links[0]).read_bytes())) as picture:
        assert abs(picture.width - columns) < 60
        assert abs(picture.height - rows) < 60


def test_output_follows_the_published_schema(docvino: Command, scan: Path) -> None:
    document = json.loads(docvino("parse", scan, "--json").stdout)
    schema = json_schema()
    assert set(document) == set(schema["properties"]) == set(schema["required"]) | {"schema_version"}
    block = document["pages"][0]["blocks"][0]
    assert set(block) == set(schema["$defs"]["Block"]["properties"])


@pytest.mark.slow
def test_verify_prints_a_row_for_every_model_and_every_precision_passes(docvino: Command) -> None:
    for precision in ("fp32", "fp16", "int8"):
        done = docvino("verify", "pp-ocr", "--precision", precision, "--json")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        assert len(rows) == 5
        for row in rows:
            assert row["problem"] is None
            assert row["precision"] == precision
            assert row["max_abs_diff"] <= row["tolerance"]
            assert row["reference"].startswith("onnxruntime ")


def test_a_damaged_model_is_found_by_verify_and_doctor(docvino: Command, tmp_path: Path) -> None:
    shutil.copytree(MODELS / "bundles", tmp_path / "bundles")
    weights = tmp_path / "bundles" / "picodet-cdla-fp32" / "model.bin"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 255
    weights.write_bytes(data)
    done = docvino("verify", "picodet-cdla", "--data-dir", tmp_path)
    assert done.returncode == 4
    assert "model.bin" in done.stderr
    checks = json.loads(docvino("doctor", "--json", "--data-dir", tmp_path).stdout)["checks"]
    assert next(check for check in checks if check["name"] == "model picodet-cdla")["status"] == "warn"


def test_wrong_weights_are_found_by_their_answers(docvino: Command, tmp_path: Path) -> None:
    folder = tmp_path / "bundles" / "pp-ocrv6-small-rec-fp32"
    shutil.copytree(MODELS / "bundles" / folder.name, folder)
    weights = folder / "model.bin"
    data = bytearray(weights.read_bytes())
    data[-4_000_000:-3_000_000] = bytes(1_000_000)  # finite numbers, only not the right ones
    weights.write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["files"]["model.bin"] = file_sha256(weights)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    done = docvino("verify", "pp-ocrv6-small-rec", "--data-dir", tmp_path)
    assert done.returncode == 5
    assert done.stderr.splitlines()[0].startswith("error: wrong on CPU: pp-ocrv6-small-rec")


def test_convert_keeps_what_is_there_unless_forced(docvino: Command) -> None:
    assert "is there" in docvino("convert", "pp-lcnet-orientation").stderr
    forced = docvino("convert", "pp-lcnet-orientation", "--force")
    assert forced.returncode == 0
    assert "largest difference" in forced.stderr


def test_models_are_listed_located_and_removed(docvino: Command, tmp_path: Path) -> None:
    rows = {row["model"]: row for row in json.loads(docvino("models", "list", "--json").stdout)}
    assert set(rows["pp-ocrv6-small-det"]["converted"]) == {"fp32", "fp16", "int8"}
    folder = Path(docvino("models", "path", "picodet-cdla").stdout.strip())
    assert (folder / "model.xml").is_file()
    shutil.copytree(folder, tmp_path / "bundles" / folder.name)
    assert docvino("models", "remove", "picodet-cdla", "--data-dir", tmp_path).returncode == 0
    assert not (tmp_path / "bundles" / folder.name).exists()
    assert docvino("models", "path", "picodet-cdla", "--data-dir", tmp_path).returncode == 4


def test_inspect_shows_names_shapes_opset_and_precision(docvino: Command) -> None:
    onnx = MODELS / "sources" / "pp-ocrv6-small-rec" / "PP-OCRv6_rec_small.onnx"
    facts = json.loads(docvino("inspect", onnx, "--json").stdout)
    assert facts["opsets"] == {"": 11}
    assert facts["inputs"] == [{"name": "x", "dtype": "f32", "shape": "[?,3,48,?]"}]
    assert facts["metadata"] == ["character"]
    ir = MODELS / "bundles" / "pp-ocrv6-small-rec-int8" / "model.xml"
    text = docvino("inspect", ir).stdout
    assert "OpenVINO IR" in text
    assert re.search(r"constants i8 \d", text)


def test_doctor_is_content_with_a_machine_that_is_set_up(docvino: Command) -> None:
    done = docvino("doctor", "--json", DOCVINO_MAX_PAGES="7")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert {check["status"] for check in report["checks"]} <= {"ok", "warn"}
    assert report["settings"]["max_pages"] == {"value": 7, "origin": "environment DOCVINO_MAX_PAGES"}
    assert report["settings"]["dpi"]["origin"] == "default"


def test_doctor_without_models_says_how_to_get_them(docvino: Command, tmp_path: Path) -> None:
    done = docvino("doctor", "--data-dir", tmp_path)
    assert done.returncode == 0
    assert "docvino fetch pp-ocr && docvino convert pp-ocr" in done.stdout


def test_an_absent_device_is_an_error_that_names_those_there(docvino: Command, scan: Path) -> None:
    done = docvino("parse", scan, "--device", "GPU.7")
    assert done.returncode == 7
    assert "GPU.7" in done.stderr
    assert "CPU" in done.stderr.splitlines()[1]


def test_demo_does_everything_in_one_command(docvino: Command, tmp_path: Path) -> None:
    done = docvino("demo", "-o", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    for preset in ("pp-ocr", "nano"):
        assert preset in done.stdout
        assert "How a page becomes text" in (tmp_path / "demo" / preset / "page" / "page.md").read_text("utf-8")


def test_demo_of_one_preset_prints_its_markdown(docvino: Command, tmp_path: Path) -> None:
    done = docvino("demo", "-o", tmp_path / "demo", "--preset", "nano")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("How a page becomes text\n")
    assert done.stdout == (tmp_path / "demo" / "nano" / "page" / "page.md").read_text("utf-8")
    with Image.open(tmp_path / "demo" / "page.png") as picture:
        assert picture.size == (1100, 760)
