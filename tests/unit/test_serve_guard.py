"""What every request passes first."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from docvino.errors import ConfigError, MissingExtraError
from docvino.serve import run
from docvino.serve.guard import JsonLines, is_loopback
from docvino.serve.problems import refusal
from docvino.serve.service import clean_name
from docvino.settings import ServeConfig, resolve
from serving import KEY, grey_png, served


def test_a_request_needs_the_key_in_one_of_two_headers(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        for wrong in ({"X-API-Key": ""}, {"X-API-Key": KEY + "x"}, {"X-API-Key": "", "Authorization": f"Basic {KEY}"}):
            refused = one.client.get("/v1/jobs", headers=wrong)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        bearer = {"X-API-Key": "", "Authorization": f"bearer {KEY}"}
        assert one.client.get("/v1/jobs", headers=bearer).status_code == 200
        for path in ("/livez", "/readyz", "/version", "/openapi.json"):
            assert one.client.get(path, headers={"X-API-Key": ""}).status_code == 200
        assert one.client.get("/metrics", headers={"X-API-Key": ""}).status_code == 401


def test_without_a_key_only_names_of_this_machine_are_answered(tmp_path: Path) -> None:
    with served(tmp_path, api_key=None) as one:
        for host in ("localhost", "localhost:8080", "127.0.0.1:80", "[::1]:8080"):
            assert one.client.get("/v1/jobs", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80"):
            assert one.client.get("/v1/jobs", headers={"Host": host}).status_code == 421


def test_pages_of_other_sites_are_refused_with_and_without_a_key(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        for origin in ("https://evil.example", "null", "http://localhost:81"):
            answer = one.client.get("/v1/jobs", headers={"Origin": origin})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
        assert one.client.get("/v1/jobs", headers={"Origin": "http://localhost"}).status_code == 200


def test_a_body_is_refused_by_what_it_says_and_by_what_comes(tmp_path: Path) -> None:
    with served(tmp_path, max_upload_mib=1) as one:
        big = b"x" * (1 << 20)
        assert one.client.post("/v1/parse", files={"file": ("a", big)}).status_code == 413

        def parts() -> Iterator[bytes]:
            yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
            for _ in range(20):
                yield b"y" * (1 << 16)

        answer = one.client.post(
            "/v1/parse", content=parts(), headers={"Content-Type": "multipart/form-data; boundary=x"}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_every_answer_has_an_id_that_the_client_may_choose(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        said = one.client.get("/v1/jobs/none", headers={"X-Request-ID": "mine-1"})
        assert said.headers["X-Request-ID"] == said.json()["error"]["request_id"] == "mine-1"
        odd = one.client.get("/livez", headers={"X-Request-ID": "a b\tc"}).headers["X-Request-ID"]
        assert len(odd) == 32


def test_a_fault_of_ours_tells_nothing_of_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(tmp_path) as one:

        def broken(*_: object) -> None:
            raise RuntimeError(f"the secret text of a document in {tmp_path}")

        one.service.store.newest = broken  # type: ignore[assignment, method-assign]
        answer = one.client.get("/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert "secret" not in caplog.text
    assert "RuntimeError" in caplog.text
    assert "broken" in caplog.text


def test_the_log_is_json_with_the_id_and_without_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="docvino.serve")
    with served(tmp_path) as one:
        answer = one.client.post(
            "/v1/parse?secret=query", files={"file": ("secret.png", grey_png(3))}, data={"password": "secret"}
        )
        assert answer.status_code == 200
        one.client.get("/secret/path")
    lines = [JsonLines().format(record) for record in caplog.records]
    assert [json.loads(line)["route"] for line in lines] == ["/v1/parse", "(none)"]
    first = json.loads(lines[0])
    assert first["request_id"] == answer.headers["X-Request-ID"]
    assert (first["method"], first["status"]) == ("POST", 200)
    assert not any("secret" in line or "grey" in line for line in lines)


def test_malformed_requests_are_told_in_the_same_shape(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        for answer, status in (
            (one.client.get("/nowhere"), 404),
            (one.client.put("/v1/jobs"), 405),
            (one.client.post("/v1/parse", content=b"{"), 422),
            (one.client.post("/v1/parse", files={"file": ("a", b"x")}, data={"dpi": "1e9"}), 422),
            (one.client.post("/v1/parse", files={"file": ("a", b"x")}, data={"nothing": "1"}), 422),
            (one.client.post("/v1/parse", files={"file": ("a", grey_png(1))}, data={"max_pages": "9999"}), 422),
            (one.client.post("/v1/parse", files={"file": ("a", grey_png(1))}, data={"formats": "mp3"}), 400),
            (one.client.get("/v1/jobs?limit=0"), 422),
        ):
            assert answer.status_code == status, answer.text
            assert answer.json()["error"].keys() == {"code", "message", "fix", "request_id"}


def test_the_openapi_describes_every_route_with_an_example_of_an_error(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        described = one.client.get("/openapi.json").json()
        assert {"/v1/parse", "/v1/jobs", "/v1/jobs/{job_id}/events", "/readyz", "/metrics"} <= described["paths"].keys()
        for methods in described["paths"].values():
            for operation in methods.values():
                assert operation["summary"]
                assert operation["responses"]["default"]["content"]["application/json"]["example"]["error"]["fix"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_another_address_needs_a_key_or_the_word_that_it_needs_none(host: str) -> None:
    host = host or "localhost.localdomain"
    with pytest.raises(ConfigError, match="no key"):
        run.check_safe(ServeConfig(host=host))
    run.check_safe(ServeConfig(host=host, api_key="k"))
    run.check_safe(ServeConfig(host=host, auth=False))
    run.check_safe(ServeConfig())


def test_a_taken_port_is_told_before_models_are_loaded() -> None:
    with run.listen(ServeConfig(port=0)) as first:
        first.listen()
        with pytest.raises(ConfigError, match="cannot listen"):
            run.listen(ServeConfig(port=first.getsockname()[1]))


def test_loopback_is_told_by_what_an_address_means() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "localhost.evil.example", "", "2130706433")))


def test_flags_in_a_fix_become_fields() -> None:
    error = ConfigError("too big (--max-pixels)", fix="set --max-pixels 5, or --no-auto-rotate")
    assert str(refusal(error)) == "too big (max_pixels)"
    assert refusal(error).fix == "set max_pixels 5, or no_auto_rotate"


def test_names_of_files_lead_nowhere() -> None:
    assert clean_name("../../../etc/passwd") == "passwd"
    assert clean_name("C:\\Windows\\a.pdf") == "a.pdf"
    assert clean_name("a\x00\r\nb.pdf") == "a___b.pdf"
    assert clean_name("..") == "_"
    assert clean_name(None) == clean_name("") == "document"
    assert len(clean_name("x" * 500)) == 120


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from docvino import cli_serve

    monkeypatch.setattr(cli_serve, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="fastapi") as caught:
        cli_serve.serve()
    assert caught.value.fix == 'pip install "docvino[serve]"'


def test_settings_of_the_service_come_from_the_environment_and_the_key_is_never_shown() -> None:
    settings = resolve(
        {"port": 0}, environ={"DOCVINO_API_KEY": "a secret", "DOCVINO_ALLOW_URL_HOST": "a.example, *.b.example"}
    )
    assert settings.serve.api_key == "a secret"
    assert settings.serve.allow_url_host == ("a.example", "*.b.example")
    assert (settings.serve.port, settings.origins["port"].source) == (0, "flag --port")
    assert "a secret" not in repr(settings.serve) + repr(settings.origins)
    with pytest.raises(ConfigError) as caught:
        resolve({"api_key": ""}, environ={})
    assert "(hidden)" in str(caught.value)
