"""What nobody would send, made from the service's own description: no answer is a 500, and the service lives on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from serving import KEY, Served, served

schemathesis = pytest.importorskip("schemathesis")

LIMIT_S = 150.0
EXAMPLES = 60  # of an operation


@dataclass
class Asked:
    one: Served
    until: float
    counts: dict[str, int] = field(default_factory=dict)
    statuses: set[int] = field(default_factory=set)

    def ask(self, operation: Any) -> None:
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            if time.monotonic() < self.until:
                self._send(operation.label, case)

        send()

    def _send(self, label: str, case: Any) -> None:
        made = case.as_transport_kwargs(base_url="http://localhost")
        headers = {name: text for name, text in (made.pop("headers", None) or {}).items() if text.isascii()}
        made.pop("cookies", None)
        if isinstance(made.get("data"), (bytes, str)):
            made["content"] = made.pop("data")
        headers |= {"X-API-Key": KEY, "Host": "localhost"}
        answer = self.one.client.request(headers=headers, **made)
        self.counts[label] = self.counts.get(label, 0) + 1
        self.statuses.add(answer.status_code)
        assert answer.status_code < 500, (label, answer.text)
        if answer.status_code >= 400:
            assert {"code", "message", "fix", "request_id"} <= answer.json()["error"].keys()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nothing_made_from_the_openapi_is_answered_with_500(tmp_path: Path) -> None:
    with served(tmp_path, max_jobs=20, sync_wait_s=20) as one:
        schema = schemathesis.openapi.from_dict(one.client.get("/openapi.json").json())
        asked = Asked(one, time.monotonic() + LIMIT_S)
        for found in schema.get_all_operations():
            operation = found.ok()
            if not operation.path.endswith("/events"):  # a stream; it is read elsewhere
                asked.ask(operation)
        assert one.client.get("/readyz").status_code == 200
    counts = asked.counts
    print(f"{sum(counts.values())} requests of {len(counts)} operations, answered {sorted(asked.statuses)}")  # noqa: T201
    assert len(counts) >= 18
    assert sum(counts.values()) >= 300
