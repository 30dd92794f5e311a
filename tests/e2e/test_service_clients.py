"""Clients that people have, as they come from the package index, against a real service."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator

import pytest

from service_process import KEY, Running, pdf, png, serving

openai = pytest.importorskip("openai")
mistralai = pytest.importorskip("mistralai")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Linux has them")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("clients"), "--layout", "none", DOCVINO_API_KEY=KEY) as one:
        yield one


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def question(number: int, prompt: str = "OCR:") -> list[dict[str, object]]:
    content = [{"type": "image_url", "image_url": {"url": uri(png(number))}}, {"type": "text", "text": prompt}]
    return [{"role": "user", "content": content}]


@pytest.fixture
def chat(running: Running) -> Iterator[object]:
    with openai.OpenAI(base_url=f"{running.url.rstrip('/')}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_openais_client_reads_a_picture(chat: openai.OpenAI) -> None:
    assert [model.id for model in chat.models.list()] == ["nano"]
    # As PaddleOCR's client of a server asks.
    made = chat.chat.completions.create(
        model="PaddleOCR-VL-1.6-0.9B",
        messages=question(5),
        temperature=0.0,
        max_completion_tokens=64,
        extra_body={"skip_special_tokens": True, "mm_processor_kwargs": {"min_pixels": 1}},
    )
    assert made.choices[0].message.content == "Page number 005"
    assert made.choices[0].finish_reason == "stop"
    assert made.usage is not None
    assert made.usage.completion_tokens > 3


def test_openais_client_streams(chat: openai.OpenAI) -> None:
    said, usage = "", None
    for chunk in chat.chat.completions.create(
        model="nano", messages=question(6), stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        said += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert said == "Page number 006"
    assert usage is not None


def test_openais_client_gets_its_own_errors(chat: openai.OpenAI, running: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        chat.chat.completions.create(model="gpt-5", messages=question(1))
    with pytest.raises(openai.BadRequestError) as caught:
        chat.chat.completions.create(model="nano", messages=question(1, "Tell me a story"))
    assert caught.value.code == "unknown_prompt"
    with (
        openai.OpenAI(base_url=chat.base_url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
    assert running.process.poll() is None


def test_mistrals_client_reads_a_pdf(running: Running) -> None:
    try:
        from mistralai.client import Mistral
    except ImportError:
        from mistralai import Mistral
    with Mistral(api_key=KEY, server_url=running.url.rstrip("/")) as client:
        made = client.ocr.process(
            model="mistral-ocr-latest",
            document={"type": "document_url", "document_url": uri(pdf(3), "application/pdf")},
            pages=[0, 2],
            include_image_base64=True,
        )
    assert [(page.index, page.markdown) for page in made.pages] == [(0, "Page number 001"), (2, "Page number 003")]
    assert made.usage_info.pages_processed == 2
