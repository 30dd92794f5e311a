"""The power plan of Windows: a GPU stays slow under one that saves energy.

Source: overlay and plan ids as public programs read them from the registry (no administrator needed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from docvino.machine.border import Machine

_SCHEMES = r"SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes"
_OVERLAYS: Mapping[str, str] = {
    "ded574b5-45a0-4f42-8737-46345c09c238": "best performance",
    "961cc777-2547-4f9d-8174-7d86181b8a7a": "best power efficiency",
    "00000000-0000-0000-0000-000000000000": "balanced",
}
_PLANS: Mapping[str, str] = {
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
}


@dataclass(frozen=True)
class Power:
    """`plan` and `mode` (the slider over it) in words, "" when unknown; on_battery None when unknown."""

    plan: str
    mode: str
    on_battery: bool | None

    @property
    def saving(self) -> bool:
        return self.plan == "power saver" or self.mode == "best power efficiency" or self.on_battery is True


def read_power(machine: Machine) -> Power:
    values = machine.registry(_SCHEMES) or {}
    battery = machine.on_battery()
    overlay = values.get("ActiveOverlayDcPowerScheme" if battery else "ActiveOverlayAcPowerScheme", "")
    plan = str(values.get("ActivePowerScheme", "")).lower()
    return Power(
        _PLANS.get(plan, "a plan of its own" if plan else ""), _OVERLAYS.get(str(overlay).lower(), ""), battery
    )
