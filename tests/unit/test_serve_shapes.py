"""The shapes of PaddleX, OpenAI and Mistral."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docvino.serve.html_table import parse_table
from docvino.serve.problems import RefusalError
from serving import Served, grey_pdf, grey_png, served


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as one:
        yield one


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64(data)}"


def chat(one: Served, prompt: str | None = "OCR:", **more: Any) -> Any:
    content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": uri(grey_png(50))}}]
    if prompt is not None:
        content.append({"type": "text", "text": prompt})
    asked = {"model": "saying", "messages": [{"role": "user", "content": content}], **more}
    return one.client.post("/v1/chat/completions", json=asked)


def test_a_chat_about_a_picture_gives_the_models_own_answer(running: Served) -> None:
    made = chat(running, "Table Recognition:").json()
    assert made["choices"][0]["message"]["content"] == "grey 50"
    assert made["choices"][0]["finish_reason"] == "stop"
    assert made["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert chat(running, None, model="PaddlePaddle/saying", max_tokens=5, temperature=0, extra=1).status_code == 200


def test_a_streamed_chat_ends_as_clients_expect(running: Served) -> None:
    text = chat(running, stream=True, stream_options={"include_usage": True}).text
    events = [line.removeprefix("data: ") for line in text.strip().split("\n\n")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    said = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
    assert said == "grey 50"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"model": "gpt-4o"}, 404, "model_not_found"),
        ({"n": 2}, 400, "bad_request"),
        ({"prompt": "What is this?"}, 400, "unknown_prompt"),
        ({"prompt": "Spotting:"}, 400, "bad_request"),  # the preset does not read it
        ({"messages": [{"role": "user", "content": "OCR:"}]}, 400, "bad_request"),
        ({"messages": []}, 422, "bad_request"),
        ({"temperature": -1}, 422, "bad_request"),
        ({"max_tokens": 0}, 422, "bad_request"),
    ],
)
def test_other_chats_are_refused_in_the_shape_of_openai(
    running: Served, change: dict[str, Any], status: int, code: str
) -> None:
    refused = chat(running, **change)
    assert refused.status_code == status, refused.text
    assert refused.json()["error"]["code"] == code
    assert refused.json()["error"]["type"] == "invalid_request_error"


def test_the_model_is_listed(running: Served) -> None:
    assert [model["id"] for model in running.client.get("/v1/models").json()["data"]] == ["saying"]
    assert running.client.get("/v1/models/org/saying").json()["id"] == "saying"
    assert running.client.get("/v1/models/none").status_code == 404


def test_mistrals_ocr_gives_pages_counted_from_0(running: Served) -> None:
    document = {"type": "document_url", "document_url": uri(grey_pdf(1, 2, 3), "application/pdf")}
    for pages in ([0, 2], "0,2"):
        made = running.client.post("/v1/ocr", json={"model": "x", "document": document, "pages": pages}).json()
        assert [(page["index"], page["markdown"]) for page in made["pages"]] == [(0, "grey 1"), (2, "grey 3")]
        assert made["pages"][0]["dimensions"] == {"dpi": 144, "height": 144, "width": 144}
        assert made["usage_info"]["pages_processed"] == 2
    image = {"type": "image_url", "image_url": uri(grey_png(9))}
    assert running.client.post("/v1/ocr", json={"document": image}).json()["pages"][0]["markdown"] == "grey 9"
    for wrong in ({"type": "file"}, {"type": "image_url", "image_url": "data:image/png;base64,%%%"}):
        assert running.client.post("/v1/ocr", json={"document": wrong}).status_code == 422
    for pages in ("a", "0--1", [-1], [99]):
        assert running.client.post("/v1/ocr", json={"document": document, "pages": pages}).status_code == 422


def test_layout_parsing_answers_as_paddlex_does(running: Served) -> None:
    made = running.client.post("/layout-parsing", json={"file": b64(grey_pdf(10, 20)), "fileType": 0, "logId": "mine"})
    said = made.json()
    assert (said["logId"], said["errorCode"], said["errorMsg"]) == ("mine", 0, "Success")
    first, second = said["result"]["layoutParsingResults"]
    assert first["prunedResult"]["parsing_res_list"][0]["block_content"] == "grey 10"
    assert not {"input_path", "page_index"} & first["prunedResult"].keys()
    assert first["prunedResult"]["page_count"] == 2
    assert second["markdown"] == {"text": "grey 20", "images": {}}
    assert said["result"]["dataInfo"] == {"type": "pdf", "numPages": 2, "pages": [{"width": 144, "height": 144}] * 2}
    image = running.client.post(
        "/layout-parsing", json={"file": b64(grey_png(9)), "visualize": True, "outputFormats": ["docx"]}
    ).json()["result"]
    assert image["dataInfo"] == {"type": "image", "width": 20, "height": 20}
    assert base64.b64decode(image["layoutParsingResults"][0]["outputImages"]["layout_det_res"]).startswith(b"\x89PNG")
    assert base64.b64decode(image["exports"]["docx"]).startswith(b"PK")


@pytest.mark.parametrize(
    "fields",
    [
        {"useDocUnwarping": True},
        {"useLayoutDetection": False},
        {"layoutThreshold": {"0": 0.5}},
        {"layoutThreshold": 7},
        {"markdownIgnoreLabels": []},
        {"repetitionPenalty": 1.2},
        {"minPixels": 5},
        {"promptLabel": "poem"},
        {"restructurePages": "yes"},
        {"maxNewTokens": -1},
        {"outputFormats": ["mp3"]},
        {"file": "http://127.0.0.1/a.pdf"},
        {"file": "file:///etc/passwd"},
        {"file": "not base64!"},
        {"file": 5},
    ],
)
def test_what_layout_parsing_cannot_follow_is_refused_in_paddlexs_envelope(
    running: Served, fields: dict[str, Any]
) -> None:
    refused = running.client.post("/layout-parsing", json={"file": b64(grey_png(1)), **fields})
    assert 400 <= refused.status_code < 500, refused.text
    assert refused.json()["errorCode"] == refused.status_code
    assert refused.json()["errorMsg"]


def page_of(*blocks: tuple[str, str], top: int = 0) -> dict[str, Any]:
    entries = [
        {
            "block_label": label,
            "block_content": content,
            "block_bbox": [10, top + 10 * place, 500, top + 10 * place + 9],
            "block_id": place,
            "mine": "kept",
        }
        for place, (label, content) in enumerate(blocks)
    ]
    return {"prunedResult": {"width": 600, "height": 800, "parsing_res_list": entries, "own": 1}}


HEAD = "<tr><td>Name</td><td>Cost</td></tr>"
TABLE = f'<table border=1>{HEAD}<tr><td>a<img src="imgs/x.png"/></td><td>1</td></tr></table>'
MORE = f"<table>{HEAD}<tr><td>b</td><td>2</td></tr></table>"


def restructure(one: Served, *pages: dict[str, Any], **more: Any) -> Any:
    return one.client.post("/restructure-pages", json={"pages": list(pages), **more})


def test_pages_are_restructured_and_what_was_sent_comes_back(running: Served) -> None:
    pages = (page_of(("doc_title", "T"), ("table", TABLE)), page_of(("table", MORE), ("text", "costs $ x $ and $5")))
    made = restructure(running, *pages).json()["result"]["layoutParsingResults"]
    first, second = (page["prunedResult"] for page in made)
    assert first["own"] == 1
    assert first["parsing_res_list"][1]["mine"] == "kept"
    assert first["parsing_res_list"][1]["block_content"].count("<tr>") == 3
    assert '<img src="imgs/x.png"/>' in first["parsing_res_list"][1]["block_content"]
    assert second["parsing_res_list"][0]["block_content"] == ""
    assert [entry["global_block_id"] for entry in second["parsing_res_list"]] == [2, 3]
    assert second["parsing_res_list"][0]["global_group_id"] == 1
    assert second["parsing_res_list"][1]["block_content"] == "costs $ x $ and $5"
    assert made[1]["markdown"]["text"] == r"costs $x$ and \$5"
    apart = restructure(running, *pages, mergeTables=False).json()["result"]["layoutParsingResults"]
    assert apart[1]["prunedResult"]["parsing_res_list"][0]["block_content"] == MORE
    (whole,) = restructure(running, *pages, concatenatePages=True).json()["result"]["layoutParsingResults"]
    assert len(whole["prunedResult"]["parsing_res_list"]) == 4


def test_pictures_of_pages_stay_where_they_are(running: Served) -> None:
    page = page_of(("text", "Look:"), ("image", ""), ("table", TABLE))
    page["markdownImages"] = {"imgs/x.png": "AAAA", "imgs/lamp.jpg": "BBBB"}
    (made,) = restructure(running, page, prettifyMarkdown=False).json()["result"]["layoutParsingResults"]
    assert "![image](imgs/lamp.jpg)" in made["markdown"]["text"]
    assert made["markdown"]["images"] == {"imgs/x.png": "AAAA", "imgs/lamp.jpg": "BBBB"}


@pytest.mark.parametrize(
    "content",
    [
        '<table><tr><td rowspan="1000000000" colspan="1000000000">x</td></tr></table>',
        "<table>" + "<tr>" + '<td colspan="1000">' * 200 + "</tr></table>",
        "<table>" + "<tr><td>" * 200_000,
        "<table>" + '<tr><td rowspan="0">' * 60_000,
    ],
)
def test_a_table_that_claims_to_be_vast_costs_nothing(running: Served, content: str) -> None:
    begun = time.monotonic()
    answer = restructure(running, page_of(("table", content)), page_of(("table", content)))
    assert answer.status_code in (200, 422), answer.text
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"prunedResult": None},
        {"prunedResult": {"parsing_res_list": "x"}},
        {"prunedResult": {"parsing_res_list": [{"block_label": 5, "block_content": "", "block_bbox": [0, 0, 1, 1]}]}},
        {"prunedResult": {"parsing_res_list": [{"block_label": "a", "block_content": "", "block_bbox": [0, 0, 1]}]}},
        {
            "prunedResult": {
                "parsing_res_list": [{"block_label": "a", "block_content": "", "block_bbox": [0, 0, 1e99, 1]}]
            }
        },
        {"prunedResult": {"parsing_res_list": [], "width": -1}},
        {"prunedResult": {"parsing_res_list": []}, "markdownImages": [1]},
    ],
)
def test_malformed_results_are_422(running: Served, page: dict[str, Any]) -> None:
    assert restructure(running, page).status_code == 422


def test_cells_are_placed_as_browsers_do() -> None:
    content = (
        '<table><tr><th rowspan="2">a</th><td colspan=2>b</td></tr>'
        '<tr><td>c &amp; <b>d</b></td><td rowspan="9">e</td></tr><tr><td>f<td>g</table>'
    )
    cells, written = parse_table(content)
    assert [(cell.row, cell.column, cell.row_span, cell.column_span, cell.text) for cell in cells] == [
        (0, 0, 2, 1, "a"),
        (0, 1, 1, 2, "b"),
        (1, 1, 1, 1, "c & d"),
        (1, 2, 2, 1, "e"),
        (2, 0, 1, 1, "f"),
        (2, 1, 1, 1, "g"),
    ]
    assert "<td>c &amp; <b>d</b></td>" in written
    assert parse_table("no table")[0] == ()
    with pytest.raises(RefusalError, match="more than 10 places"):
        parse_table("<tr>" + "<td>x" * 11, 10)
