"""Devices and compiled models: with `decoder`, the only runtime room that knows OpenVINO.

core.py        the border: one `ov.Core` for the process
devices.py     which devices there are, what each is like, which one is taken
profiles.py    how each kind of device is used unless settings say otherwise
memory.py      whether a model's memory is there, before it is compiled
cache.py       what is kept between runs: compiled models, self-tests that passed
compiling.py   role, profile and settings -> properties -> a compiled model that does what it was asked
model.py       compiled models, and running them
padding.py     vision graphs for devices that compile something for each size

OpenVINO's errors become DeviceError (cannot compile) and InferenceError (cannot run) here.
"""

from docvino.device.cache import Entry, Kept, list_cache, remove_kept
from docvino.device.compiling import activation_group, compile_model, compile_part
from docvino.device.core import first_line, open_core, openvino_version
from docvino.device.devices import (
    DeviceInfo,
    Target,
    check_device,
    choose_device,
    find_device,
    list_devices,
    said,
    target_of,
)
from docvino.device.model import Compiled, Model, Tensors
from docvino.device.padding import PaddedModel
from docvino.device.profiles import PROFILES, Profile, ShapeSteps

__all__ = [
    "PROFILES",
    "Compiled",
    "DeviceInfo",
    "Entry",
    "Kept",
    "Model",
    "PaddedModel",
    "Profile",
    "ShapeSteps",
    "Target",
    "Tensors",
    "activation_group",
    "check_device",
    "choose_device",
    "compile_model",
    "compile_part",
    "find_device",
    "first_line",
    "list_cache",
    "list_devices",
    "open_core",
    "openvino_version",
    "remove_kept",
    "said",
    "target_of",
]
