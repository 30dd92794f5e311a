"""The steps of a bring-up. Nothing stops at a failure: it is written down, and the next question asked.

The reference for all numbers is the CPU of the same machine, in f32 with exact keys and values.
"""

from __future__ import annotations

import gc
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino import __version__
from docvino.bringup import lines
from docvino.bringup.decoder import CASES, paged, plainly, wander
from docvino.bringup.report import Report, Status, Step
from docvino.bundle import VlmBundle, bundle_folder, is_vlm_bundle, open_bundle, open_vlm_bundle
from docvino.codec import vlm
from docvino.convert.vlm import convert_vlm
from docvino.decoder.choose import TOLERANCE_EXACT, TOLERANCE_HALF, TOLERANCE_ROUNDED, distance
from docvino.decoder.contract import Embed, KvSettings, Rotary
from docvino.decoder.paged import PagedDecoder
from docvino.decoder.stateful import StatefulDecoder
from docvino.device import DeviceInfo, Model, compile_model, compile_part, open_core, openvino_version, said, target_of
from docvino.document import Crop
from docvino.errors import BundleError, DocvinoError
from docvino.golden_vlm import LIMITS
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import VlmReader
from docvino.selftest import FORMATS
from docvino.settings import KvPrecision, ParseOptions, RuntimeConfig, WeightPrecision
from docvino.specs import VLM_PRESETS, how_to_get, pp_ocr
from docvino.verify import verify_vlm

Floats = NDArray[np.float32]

MIB = 2**20
STEPS = 1000  # calls of mixed work
_PRECISIONS: tuple[WeightPrecision, ...] = ("fp32", "fp16", "int8", "int4")
_SHIPPED: tuple[WeightPrecision, ...] = ("fp32", "int8", "int4")  # at which a model that docvino brings is converted
_KEPT: tuple[KvPrecision, ...] = ("f16", "u8")
_KV_MIB = 256
_GROWTH = 0.05  # of memory, after a fifth of the calls. Source: row P-026 of the field's failure log
_GROWTH_MIB = 64  # below this it is the allocator's: 35 MiB measured on a CPU, in the first 600 calls
_NEW_SIZE = 3.0  # times its second run that the first run of a size may take. Source: row P-033
_NEW_SIZE_S = 1.0  # below this nobody waits
_READINGS = 10  # of one crop, which must give one text. Source: row P-015
# Rounding is the same in every case of a decoder. A case that is further off than so many times their median, and this
# much, has another fault: positions above 3,000 with angles in 16 bits gave 0.026 where the others had 0.0001 to 0.004.
_ALIKE = 4.0
_ALIKE_LEAST = 0.002
# Tokens of a block. Source: openvino 2026.4: CPU 32, GPU 16 (256 with sparse attention, which docvino leaves off).
_BLOCK_TOKENS = {"CPU": 32, "GPU": 16}
_PRIVATE = frozenset({"CACHE_DIR", "CONFIG_FILE", "WEIGHTS_PATH", "DEVICE_UUID", "DEVICE_LUID"})


def bring_up(
    name: str, runtime: RuntimeConfig, *, steps: int | None = None, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Asks everything of the device that `runtime` means, with every precision of the model that is converted.

    name    a vision-language model; one that comes with docvino is converted for the occasion
    steps   calls of mixed work for the look at memory, 10 or more; by default STEPS

    Raises: BundleError when no precision of the model is there, DeviceError when the device is absent.
    """
    with tempfile.TemporaryDirectory(prefix="docvino-bring-up-") as scratch:
        asking = _Asking(name, runtime, _bundles(name, runtime, Path(scratch), say), Path(scratch), steps or STEPS, say)
        for ask in (asking.device, asking.ports, asking.decoders, asking.visions, asking.reading, asking.lines):
            ask()
        asking.starts()
        asking.memory()
        return asking.report


def _bundles(
    name: str, runtime: RuntimeConfig, scratch: Path, say: Callable[[str], None]
) -> dict[WeightPrecision, VlmBundle]:
    folders = {precision: bundle_folder(runtime.data_dir, name, precision) for precision in _PRECISIONS}
    found = {precision: open_vlm_bundle(path) for precision, path in folders.items() if is_vlm_bundle(path)}
    preset = VLM_PRESETS.get(name)
    if not found and preset is not None and isinstance(preset.source, Path):
        say(f"{name} is converted at {', '.join(_SHIPPED)}")
        for precision in _SHIPPED:
            out = scratch / "bundles" / f"{name}-{precision}"
            found[precision] = convert_vlm(preset.source, out, precision).bundle
    if not found:
        fix = (
            f"{how_to_get(name)}, or take nano, which comes with docvino"
            if preset
            else "docvino verify nano --bring-up"
        )
        raise BundleError(f"a bring-up needs a vision-language model, and there is none called {name}", fix=fix)
    return found


@dataclass
class _Answer:
    found: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skipped: str | None = None

    def skip(self, why: str) -> None:
        self.skipped = why

    def fail(self, problem: str) -> None:
        self.problems.append(problem)


class _Asking:
    def __init__(
        self,
        name: str,
        runtime: RuntimeConfig,
        bundles: Mapping[WeightPrecision, VlmBundle],
        scratch: Path,
        steps: int,
        say: Callable[[str], None],
    ) -> None:
        target = target_of(runtime)
        self._device, self._execution = target.device, target.execution
        self._bundles, self._scratch, self._calls, self._say = bundles, scratch, max(10, steps), say
        # What is found out must not come from an earlier run, and leaves nothing behind.
        self._here = runtime.model_copy(
            update={
                "device": target.device.name,
                "execution": target.execution,
                "cache_dir": scratch / "cache",
                "model_cache": False,
                "allow_fallback": False,
                **dict.fromkeys(("layout_device", "vision_device", "decoder_device")),
            }
        )
        self._cpu = self._here.model_copy(update={"device": "CPU", "execution": "f32", "kv_precision": "f32"})
        self._first = next(iter(bundles.values()))
        self.report = Report(
            docvino=__version__,
            openvino=openvino_version(),
            python=platform.python_version(),
            system=platform.platform(terse=True),
            device={
                **{key: value for key, value in asdict(target.device).items() if key not in ("uuid", "profile")},
                "profile": target.device.profile.name,
            },
            model=name,
            precisions=tuple(bundles),
            execution=target.execution,
        )

    @contextmanager
    def _step(self, name: str, wanted: str) -> Iterator[_Answer]:
        self._say(name)
        answer, started = _Answer(), time.perf_counter()
        try:
            yield answer
        except DocvinoError as error:
            answer.fail(str(error))
        problem = "; ".join(answer.problems) or answer.skipped
        status: Status = "fail" if answer.problems else "skip" if answer.skipped else "ok"
        seconds = round(time.perf_counter() - started, 2)
        self.report.steps.append(Step(name, status, wanted, answer.found, problem, seconds))
        if problem:
            self._say(f"  {status}: {problem}")
        gc.collect()  # the memory of what a step compiled is for the next

    def device(self) -> None:
        with self._step("device", "says what it is") as answer:
            answer.found["device"] = said(self._device)
            answer.found["architecture"] = self._device.architecture
            answer.found["capabilities"] = " ".join(self._device.capabilities)
            answer.found["properties"] = _properties(self._device)
            if self._device.family == "GPU" and self._device.driver is None:
                answer.fail("its driver has no version: passed self-tests would outlive an update")

    def ports(self) -> None:
        wanted = _BLOCK_TOKENS.get(self._device.family)
        with self._step("blocks of keys and values", f"{wanted} tokens each, sizes known") as answer:
            decoder = self._paged(self._first, "f16")
            answer.found = {
                "tokens": decoder.block_tokens,
                "KiB a token": decoder.block_bytes / decoder.block_tokens / 1024,
                **{port.name: f"{port.type_name} {list(port.block_shape)}" for port in decoder.ports[:2]},
            }
            decoder.close()
            if decoder.block_tokens != wanted:
                answer.fail(f"{decoder.block_tokens} tokens each")

    def decoders(self) -> None:
        for precision, bundle in self._bundles.items():
            for kept in _KEPT:
                self._decoder(precision, bundle, kept)

    def _decoder(self, precision: WeightPrecision, bundle: VlmBundle, kept: KvPrecision) -> None:
        compressed = precision in ("int8", "int4")  # a CPU may round activations beside such weights
        if kept == "u8" or compressed:
            limit = TOLERANCE_ROUNDED
        else:
            limit = TOLERANCE_EXACT if self._execution == kept == "f32" else TOLERANCE_HALF
        name = f"decoder, {precision} weights, {kept} keys and values"
        with self._step(name, f"logits at most {limit:g} deviations from the CPU's, in all cases alike") as answer:
            vocabulary, embed = bundle.facts.text.vocabulary, self._embed(bundle)
            plain = StatefulDecoder(
                bundle.part("decoder"), "decoder", self._cpu, KvSettings(_KV_MIB, "f32"), _rotary(bundle)
            )
            expected = {case.name: plainly(plain, case, embed, vocabulary) for case in CASES}
            plain.close()
            decoder = self._paged(bundle, kept)
            answer.found["stored as"] = decoder.kv_type
            equal = total = 0
            distances: dict[str, float] = {}
            for case in CASES:
                wanted, found = expected[case.name], paged(decoder, case, embed, vocabulary)
                distances[case.name] = distance(wanted, found)
                equal += int((wanted.argmax(1) == found.argmax(1)).sum())
                total += len(wanted)
            decoder.close()
            answer.found |= {**distances, "likeliest tokens": f"{equal} of {total} as on the CPU"}
            alike = _ALIKE * statistics.median(distances.values()) + _ALIKE_LEAST
            for name, far in distances.items():
                if not far <= min(limit, alike):  # a NaN must not pass
                    answer.fail(f"{name}: {far:.2g}")

    def visions(self) -> None:
        for precision, bundle in self._bundles.items():
            self._vision(precision, bundle)

    def _vision(self, precision: WeightPrecision, bundle: VlmBundle) -> None:
        limit = max(LIMITS[form] for form in (precision, FORMATS[self._execution]))
        with self._step(f"vision, {precision} weights", f"finite, within {limit:g} of the CPU, always alike") as answer:
            here = compile_part(bundle.part("vision"), "vision", self._here, bundle.facts.largest_patches())
            there = compile_part(bundle.part("vision"), "vision", self._cpu, bundle.facts.largest_patches())
            for label, pixels in _sizes(bundle).items():
                inputs = vlm.cut(_noise(pixels, bundle), bundle.facts).inputs()
                first_s, found = _timed(here, inputs)
                again_s, again = _timed(here, inputs)
                wanted = there.run(inputs)["image_embeds"]
                far = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
                patches = inputs["pixel_values"].shape[1]
                answer.found[f"{label} ({patches} patches)"] = far
                answer.found[f"{label}, first and second time"] = f"{first_s:.2f} s, {again_s:.2f} s"
                if not far <= limit:
                    answer.fail(f"{label}: {far:.2g}")
                if not np.array_equal(found, again):
                    answer.fail(f"{label}: other numbers the second time")
        passes = f"a first run takes at most {_NEW_SIZE:g} times the second, or {_NEW_SIZE_S:g} s more"
        with self._step(f"new sizes, {precision} weights", passes) as answer:
            here = compile_part(bundle.part("vision"), "vision", self._here)
            least = min(budget.min_pixels for budget in bundle.facts.pixels.budgets.values())
            runs = []
            for number in range(21):
                inputs = vlm.cut(_noise(round(least * (1 + number / 20)), bundle), bundle.facts).inputs()
                runs.append((_timed(here, inputs)[0], _timed(here, inputs)[0]))
            del runs[0]  # the very first run sets up more than its size
            worst = max(runs, key=lambda run: run[0] - run[1])
            answer.found = {
                "first run, median s": statistics.median(first for first, _ in runs),
                "second run, median s": statistics.median(second for _, second in runs),
                "worst": f"{worst[0]:.2f} s, then {worst[1]:.2f} s",
            }
            if worst[0] > _NEW_SIZE * worst[1] and worst[0] > worst[1] + _NEW_SIZE_S:
                answer.fail(f"a new size took {worst[0]:.1f} s, the same again {worst[1]:.1f} s")

    def reading(self) -> None:
        with self._step("reading", f"one text in {_READINGS} readings, and among other crops") as answer:
            reader, parts = VlmReader.open(self._first, self._here.model_copy(update={"allow_fallback": True}))
            for part in parts:
                where = f"{', '.join(part.compiled.devices)} in {part.compiled.execution_precision}"
                answer.found[part.part] = where
                if part.fallback:
                    answer.fail(f"{part.part} runs on {where}: {part.fallback}")
            self.report.active = f"{parts[-1].part.removeprefix('decoder: ')}, on {answer.found[parts[-1].part]}"
            options = ParseOptions(max_new_tokens=24, loop_guard=False)
            least = min(budget.min_pixels for budget in self._first.facts.pixels.budgets.values())
            crops = [Crop(_noise(least, self._first, seed), "ocr", ()) for seed in range(4)]
            alone = [reader.read([crop], options, Clock())[0].text for crop in crops]
            if [answer_.text for answer_ in reader.read(crops, options, Clock())] != alone:
                answer.fail("a crop among others reads otherwise than alone")
            texts = {alone[0], *(reader.read(crops[:1], options, Clock())[0].text for _ in range(_READINGS - 1))}
            answer.found["texts of one crop"] = len(texts)
            if len(texts) > 1:
                answer.fail(f"{len(texts)} texts of one crop")

    def lines(self) -> None:
        spec = pp_ocr.RECOGNITION
        folder = bundle_folder(self._here.data_dir, spec.name, "fp32")
        with self._step("text lines", f"{lines.WIDTHS} widths and batches of {lines.BATCHES} as on the CPU") as answer:
            if not folder.exists():
                answer.skip("pp-ocr is not converted: docvino fetch pp-ocr && docvino convert pp-ocr")
                return
            bundle, drawn = open_bundle(folder), lines.draw()
            wanted = lines.read(compile_model(bundle.graph, spec, self._cpu), spec, bundle, drawn, 1)
            here = compile_model(bundle.graph, spec, self._here)
            for batch in (*lines.BATCHES, 1):  # one by one again: what came between must not matter
                found = lines.read(here, spec, bundle, drawn, batch)
                other = [place for place, pair in enumerate(zip(wanted, found, strict=True)) if pair[0] != pair[1]]
                answer.found[f"{batch} at a time"] = f"{len(drawn) - len(other)} of {len(drawn)} texts"
                if other:
                    first = other[0]
                    answer.fail(f"{batch} at a time, line {first} is {found[first]!r}, not {wanted[first]!r}")

    def starts(self) -> None:
        with self._step("second start", "all graphs from the cache, the same numbers") as answer:
            found = []
            for number in ("first", "second"):
                open_core.cache_clear()  # nothing of the first start is left but its cache
                gc.collect()
                checked = verify_vlm(self._first.folder, self._here.model_copy(update={"model_cache": True}))
                found.append(checked)
                if checked.compile_ms is not None:
                    loaded = f"{checked.from_cache} of {len(checked.parts)} from the cache"
                    answer.found[number] = f"{checked.compile_ms / 1000:.2f} s, {loaded}"
                if checked.problem:
                    answer.fail(f"{number} start: {checked.problem}")
            if found[1].from_cache != len(found[1].parts):
                answer.fail(f"{found[1].from_cache} of {len(found[1].parts)} graphs came from the cache")
            if found[0].parts != found[1].parts:
                answer.fail("the second start computes other numbers")
        if self._device.family == "CPU":
            return  # docvino does not cache the paged decoder there
        with self._step("second start of the paged decoder", "from the cache, the same numbers") as answer:
            logits = []
            for number in ("first", "second"):
                started = time.perf_counter()
                decoder = self._paged(self._first, "f16", cached=True)
                how = "from the cache" if decoder.compiled.from_cache else "compiled"
                answer.found[number] = f"{time.perf_counter() - started:.2f} s, {how}"
                embed = self._embed(self._first)
                logits.append(paged(decoder, CASES[1], embed, self._first.facts.text.vocabulary))
                decoder.close()
            if how != "from the cache":
                answer.fail("it was compiled again")
            if not np.array_equal(logits[0], logits[1]):
                answer.fail("the second start computes other numbers")

    def memory(self) -> None:
        early = self._calls // 5
        with self._step("memory", f"at most {_GROWTH:.0%} more after {self._calls} calls than after {early}") as answer:
            decoder, vocabulary = self._paged(self._first, "f16"), self._first.facts.text.vocabulary
            after: dict[int, tuple[float, float]] = {}
            for done in wander(decoder, self._embed(self._first), vocabulary, self._calls):
                if done % early == 0:
                    after[done] = _process_mib(), _device_mib(self._device)
            decoder.close()
            for place, whose in enumerate(("process", "device")):
                mib = [values[place] for values in after.values()]
                if not mib[0] > 0:  # nobody says
                    continue
                answer.found[f"{whose}, MiB"] = ", ".join(f"{value:.0f}" for value in mib)
                growth = max(mib[1:]) / mib[0] - 1
                if growth > _GROWTH and max(mib[1:]) > mib[0] + _GROWTH_MIB:
                    answer.fail(f"memory of the {whose} grew by {growth:.1%}")

    def _paged(self, bundle: VlmBundle, kept: KvPrecision, *, cached: bool = False) -> PagedDecoder:
        here = self._here.model_copy(update={"model_cache": cached})
        return PagedDecoder(bundle.part("decoder"), "decoder", here, KvSettings(_KV_MIB, kept), _rotary(bundle))

    def _embed(self, bundle: VlmBundle) -> Embed:
        """Embeddings as the CPU has them, also for the device: a decoder is judged by itself."""
        model = compile_part(bundle.part("embed"), "embed", self._cpu)
        return lambda ids: model.run({"input_ids": ids[None]})["inputs_embeds"][0]


def _rotary(bundle: VlmBundle) -> Rotary:
    return lambda positions: vlm.text_rotary(positions, bundle.facts.text)


def _properties(device: DeviceInfo) -> dict[str, str]:
    """Everything that OpenVINO tells of a device, but what tells of this machine's owner."""
    core, found = open_core(), {}
    names = set(core.get_property(device.name, "SUPPORTED_PROPERTIES")) | {f"{device.family}_DRIVER_VERSION"}
    for name in sorted(names - _PRIVATE):
        try:
            found[name] = str(core.get_property(device.name, name))
        except (RuntimeError, TypeError) as error:  # TypeError: a value that Python has no form for
            found[name] = f"({type(error).__name__})"
    return found


def _sizes(bundle: VlmBundle) -> dict[str, int]:
    """Areas of crops in pixels: the least, the most, and one between."""
    budgets = bundle.facts.pixels.budgets.values()
    least, most = min(b.min_pixels for b in budgets), max(b.max_pixels for b in budgets)
    return {"small": least, "medium": round(math.sqrt(least * most)), "large": most}


def _noise(area_px: int, bundle: VlmBundle, seed: int = 0) -> NDArray[np.uint8]:
    """Squares in random colours, about twice as wide as high, uint8 (H, W, 3) of that area at most."""
    factor = bundle.facts.vision.factor_px
    rows = max(1, int(math.sqrt(area_px / 2)) // factor)
    columns = max(1, area_px // (rows * factor) // factor)
    step = factor // 4
    squares = np.random.default_rng(seed).integers(0, 256, (rows * 4, columns * 4, 3), np.uint8)
    return np.repeat(np.repeat(squares, step, 0), step, 1)


def _timed(model: Model, inputs: Mapping[str, NDArray[Any]]) -> tuple[float, Floats]:
    started = time.perf_counter()
    found = model.run(inputs)["image_embeds"]
    return time.perf_counter() - started, found


def _process_mib() -> float:
    """Memory that this process has; 0 where the system does not say."""
    if not sys.platform.startswith("linux"):
        return 0.0
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / MIB


def _device_mib(device: DeviceInfo) -> float:
    """Memory of the device that this process has; 0 where OpenVINO does not say."""
    if device.family != "GPU":
        return 0.0
    try:
        found = open_core().get_property(device.name, "GPU_MEMORY_STATISTICS")
    except RuntimeError:
        return 0.0
    return sum(found.values()) / MIB if isinstance(found, dict) else 0.0
