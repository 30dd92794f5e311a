"""The paged form of the decoder: OpenVINO's PagedAttention over blocks of keys and values that docvino owns.

On disk lies the stateful form; it is turned into the paged one when it is loaded, because OpenVINO 2026.4 cannot read a
paged model back. Shapes, types and the number of tokens of a block are read from the compiled model.
Source of the inputs' meaning and of the layouts: openvino 2026.4.1, openvino.genai 2026.4 (cache/kv_cache_manager.hpp,
continuous_batching/model_runner.hpp); what is said of GPUs comes from those sources and was not run here.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from docvino.decoder.contract import (
    MAX_ROWS,
    PREFILL_TOKENS,
    Form,
    KvSettings,
    Phase,
    Rotary,
    Row,
    pack,
    padding_blocks,
)
from docvino.device import Compiled, Target, activation_group, first_line, open_core, openvino_version, target_of
from docvino.device.compiling import base_properties, compile_cached
from docvino.device.memory import Need, need_of
from docvino.errors import BundleError, ConfigError, DeviceError, InferenceError
from docvino.settings import KvPrecision, RuntimeConfig

log = logging.getLogger(__name__)

TESTED_OPENVINO = ("2026.4",)  # versions whose private paged-attention pass was tried, tests included
MIB = 2**20

# Types of key and value ports that docvino can make tensors of, and how numpy holds them.
_HOLDERS = {"u8": np.uint8, "i8": np.int8, "f16": np.float16, "bf16": np.uint16, "f32": np.float32}


def paged_attention_pass() -> Callable[[ov.Model], None]:
    """OpenVINO's pass that turns stateful attention into PagedAttention. It is private: this function alone imports it.

    Raises: DeviceError when the installed OpenVINO has it no more.
    """
    version = openvino_version()
    try:
        from openvino._offline_transformations import paged_attention_transformation
    except ImportError as error:
        raise DeviceError(
            f"OpenVINO {version} has no paged attention transformation",
            fix=f"install openvino {' or '.join(TESTED_OPENVINO)}, or allow the stateful decoder",
        ) from error
    if not version.startswith(TESTED_OPENVINO):
        log.warning("paged attention was tested with OpenVINO %s, this is %s", ", ".join(TESTED_OPENVINO), version)
    passed: Callable[[ov.Model], None] = paged_attention_transformation
    return passed


def read_decoder(path: Path) -> ov.Model:
    """Reads the stateful decoder.

    Raises: BundleError when it cannot be read or has other inputs than docvino's decoders.
    """
    try:
        model = open_core().read_model(path)
    except RuntimeError as error:
        raise BundleError(
            f"OpenVINO cannot read {path.name}: {first_line(error)}", fix="convert the model again with --force"
        ) from error
    names = input_names(model)
    if not ({"inputs_embeds", "attention_mask", "beam_idx"} <= names and position_inputs(names)):
        raise BundleError(
            f"{path.name} has the inputs {', '.join(sorted(names))}: it is no text decoder of docvino",
            fix="convert the model again with --force",
        )
    return model


def widths(model: ov.Model, path: Path) -> tuple[int, int]:
    """Hidden size and vocabulary of a stateful decoder."""
    embeddings = model.input("inputs_embeds").get_partial_shape()
    logits = model.output(0).get_partial_shape()
    if embeddings.rank.is_dynamic or embeddings[2].is_dynamic or logits.rank.is_dynamic or logits[2].is_dynamic:
        raise BundleError(
            f"{path.name} takes {embeddings} and gives {logits}", fix="convert the model again with --force"
        )
    return embeddings[2].get_length(), logits[2].get_length()


def input_names(model: Any) -> set[str]:
    return {port.get_any_name() for port in model.inputs}


def position_inputs(names: set[str]) -> tuple[str, ...]:
    """How a decoder is told positions: rotary tables made on the host, or 3-row integer positions."""
    if {"rotary_cos", "rotary_sin"} <= names:
        return "rotary_cos", "rotary_sin"
    return ("position_ids",) if "position_ids" in names else ()


def to_paged(model: ov.Model) -> None:
    """Turns a stateful decoder into its paged form, in place.

    Before: inputs_embeds (B, L, H), attention_mask, beam_idx, positions, states; logits (B, 1, V) of the last token.
    After: inputs_embeds (T, H), positions (3, T) or tables (T, 1, 1, D), the six inputs that `Packed` describes,
    key_cache.N and value_cache.N; logits (S, 1, V) of the tokens in sample_idx.

    Raises: BundleError for a decoder that is built otherwise, DeviceError when OpenVINO lacks the pass.
    """
    run_pass = paged_attention_pass()
    # Tokens are packed along the first axis, so "the last one" becomes "those asked for". All logits of a long prompt
    # would be hundreds of MiB.
    last = [
        node
        for node in model.get_ops()
        if node.get_type_name() == "Slice" and node.get_output_partial_shape(0).rank == ov.Dimension(3)
    ]
    if len(last) != 1:
        raise BundleError(
            f"the decoder has {len(last)} places that select the last token, not one",
            fix="convert the model again with --force",
        )
    wanted = ops.parameter([-1], np.int64, name="sample_idx")
    wanted.output(0).set_names({"sample_idx"})
    chosen = ops.gather(last[0].input_value(0), wanted, ops.constant(np.int64(0)))
    for reader in list(last[0].output(0).get_target_inputs()):
        reader.replace_source_output(chosen.output(0))
    model.add_parameters([wanted])
    hidden = model.input("inputs_embeds").get_partial_shape()[2]
    for port in model.inputs:
        port.get_node().set_friendly_name(port.get_any_name())  # the pass looks for inputs by this name
    model.validate_nodes_and_infer_types()
    try:
        run_pass(model)
    except RuntimeError as error:
        raise DeviceError(
            f"OpenVINO cannot give the decoder its paged form: {first_line(error)}", fix="allow the stateful decoder"
        ) from error
    for parameter in model.get_parameters():
        # The pass adds position_ids even where nothing reads them.
        if parameter.get_friendly_name() == "position_ids" and not parameter.output(0).get_target_inputs():
            model.remove_parameter(parameter)
        elif parameter.get_friendly_name() == "inputs_embeds":
            # The pass forgets the width: the first norm would not be fused, and queries would have no width, either.
            parameter.set_partial_shape(ov.PartialShape([-1, hidden]))
        elif parameter.get_friendly_name() in ("rotary_cos", "rotary_sin"):
            # Every packed token is a batch of its own, one token long.
            tables = parameter.get_partial_shape()
            parameter.set_partial_shape(ov.PartialShape([-1, 1, 1, tables[3]]))
    model.validate_nodes_and_infer_types()
    attentions = [node for node in model.get_ops() if node.get_type_name() == "PagedAttentionExtension"]
    for node in attentions:
        query = node.input_value(0).get_partial_shape()
        if len(query) != 2 or query[1].is_dynamic:
            # A GPU counts heads by this dimension, and its compiler crashes without.
            raise BundleError(f"attention queries have the shape {query}", fix="convert the model again with --force")
    if not attentions:
        raise BundleError("the decoder has no attention that can be paged", fix="convert the model again with --force")


@dataclass(frozen=True)
class CachePort:
    """One key or value input as the device wants it: all dimensions but the number of blocks."""

    name: str
    type_name: str
    block_shape: tuple[int, ...]

    @property
    def block_bytes(self) -> int:
        return int(np.prod(self.block_shape)) * int(np.dtype(_HOLDERS[self.type_name]).itemsize)


def cache_ports(compiled: Any) -> tuple[CachePort, ...]:
    """The key and value inputs of a compiled paged decoder.

    Raises: DeviceError when a device wants a layout that docvino cannot make.
    """
    ports = []
    for port in compiled.inputs:
        name = port.get_any_name()
        if not name.startswith(("key_cache.", "value_cache.")):
            continue
        shape, kind = port.get_partial_shape(), port.get_element_type().get_type_name()
        if len(shape) != 4 or any(size.is_dynamic for size in list(shape)[1:]) or kind not in _HOLDERS:
            raise DeviceError(
                f"the device wants {name} as {kind} {shape}, which docvino cannot make",
                fix="allow the stateful decoder",
            )
        ports.append(CachePort(name, kind, tuple(size.get_length() for size in list(shape)[1:])))
    if not ports:
        raise DeviceError("the compiled decoder has no key and value inputs", fix="allow the stateful decoder")
    return tuple(ports)


def block_tokens_of(ports: Sequence[CachePort]) -> int:
    """Tokens of a block: dimension 2 of the values, which no device quantises along tokens.

    (Keys may be transposed, or carry scales along tokens.)
    """
    sizes = {port.block_shape[1] for port in ports if port.name.startswith("value_cache.")}
    if len(sizes) != 1:
        raise DeviceError(f"value blocks of {sorted(sizes)} tokens in one decoder", fix="allow the stateful decoder")
    return sizes.pop()


def blocks_of_budget(settings: KvSettings, block_bytes: int, block_tokens: int) -> int:
    """How many blocks a budget holds, those of padding not counted.

    Raises: ConfigError when it holds none.
    """
    total = settings.budget_mib * MIB // block_bytes - padding_blocks(block_tokens)
    if total < 1:
        needed = -(-block_bytes * (padding_blocks(block_tokens) + 1) // MIB)
        raise ConfigError(
            f"kv_cache_mib {settings.budget_mib} holds no block of keys and values ({block_bytes / MIB:.2f} MiB each)",
            fix=f"set kv_cache_mib to {needed} or more; 1024 is the default",
        )
    return total


def decoder_need(model: ov.Model, target: Target, runtime: RuntimeConfig, kv_bytes: int) -> Need:
    """Memory for a stateful or, before it is made one, a paged decoder that reads prompts of `step_tokens` at once."""
    tokens = max(runtime.step_tokens, PREFILL_TOKENS)
    largest: dict[str, list[int]] = {}
    for port in model.inputs:
        sizes = [size.get_length() if size.is_static else 1 for size in port.get_partial_shape()]
        name = port.get_any_name()
        if name != "beam_idx":
            # The tokens' axis: embeddings (B, L, H), mask (B, L), tables (B, 1, L, D), positions (3, B, L).
            sizes[1 if name in ("inputs_embeds", "attention_mask") else 2] = tokens
        largest[name] = sizes
    return need_of(model, target.execution, largest, keys_and_values=kv_bytes)


def compile_decoder(
    model: ov.Model,
    name: str,
    path: Path,
    target: Target,
    runtime: RuntimeConfig,
    precision: KvPrecision,
    group: int | None,
    need: Need,
    *,
    cacheable: bool,
) -> Compiled:
    """Compiles either form.

    group   tokens that share a scale when activations are quantised; None leaves OpenVINO's own

    Raises: DeviceError when the device refuses it, or computes otherwise than asked.
    """
    on_cpu = target.device.family == "CPU"
    properties: dict[str, Any] = {
        **base_properties(target, runtime, slots=1),
        "NUM_STREAMS": "1",
        # GPUs call unsigned bytes i8 here, and take them for granted in paged models when nothing is said.
        "KV_CACHE_PRECISION": "i8" if precision == "u8" and not on_cpu else precision,
    }
    if group is not None and on_cpu:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(group)
    return compile_cached(model, name, target, properties, runtime, path, need, cacheable=cacheable)


def quantisation_group(model: ov.Model, settings: KvSettings) -> int | None:
    """`group` of `compile_decoder`: 0 switches the rounding of activations off."""
    return 0 if settings.exact else activation_group(model)


def rounds_activations(group: int | None, target: Target) -> bool:
    """Whether a device may compute with activations of 8 bits; those of a CPU without instructions for it do not."""
    return bool(group) and target.device.family == "CPU"


class PagedDecoder:
    """Many sequences in one call. Implements `Decoder`.

    The blocks are made once: on GPUs, a request that is given larger ones later computes rubbish.
    """

    form: Form = "paged"
    max_rows = MAX_ROWS

    def __init__(
        self,
        path: Path,
        name: str,
        runtime: RuntimeConfig,
        settings: KvSettings,
        rotary: Rotary | None = None,
    ) -> None:
        """Loads a stateful decoder from `path` in its paged form.

        rotary   positions int64 (3, n) -> cos, sin float32 (n, D); needed by decoders that take tables

        Raises: BundleError, ConfigError (budget), DeviceError.
        """
        self.name, target = name, target_of(runtime)
        model = read_decoder(path)
        self.hidden, self.vocabulary = widths(model, path)
        group = quantisation_group(model, settings)
        self.rounds_activations = rounds_activations(group, target)
        need = decoder_need(model, target, runtime, settings.budget_mib * MIB)
        to_paged(model)
        self._device = target.device.name
        self._on_cpu = target.device.family == "CPU"
        precision = settings.precision or target.kv_precision
        # A CPU writes a cached model at every start and never reads it: what it needs is not kept in the file.
        self.compiled = compile_decoder(
            model, name, path, target, runtime, precision, group, need, cacheable=not self._on_cpu
        )
        self.devices, self.execution_precision = self.compiled.devices, self.compiled.execution_precision
        self._names = input_names(self.compiled.raw)
        self._position_inputs = position_inputs(self._names)
        self._rotary = needed_rotary(self._position_inputs, rotary, name)
        self.ports = cache_ports(self.compiled.raw)
        self.kv_type = self.ports[-1].type_name
        self.block_tokens = block_tokens_of(self.ports)
        self.block_bytes = sum(port.block_bytes for port in self.ports)
        self.num_blocks = blocks_of_budget(settings, self.block_bytes, self.block_tokens)
        stored = self.num_blocks + padding_blocks(self.block_tokens)
        self._blocks: list[_HostBlocks | _DeviceBlocks] = (
            [_HostBlocks(port, stored) for port in self.ports]
            if self._on_cpu
            else self._device_blocks(self.ports, stored)
        )
        self._request = self._new_request()

    def _device_blocks(self, ports: Sequence[CachePort], stored: int) -> list[_HostBlocks | _DeviceBlocks]:
        context = open_core().get_default_context(self._device)
        try:
            return [_DeviceBlocks(context, port, stored) for port in ports]
        except RuntimeError as error:
            raise DeviceError(
                f"{self._device} has no memory for {stored * self.block_bytes / MIB:.0f} MiB of keys and values: "
                f"{first_line(error)}",
                fix="lower kv_cache_mib",
            ) from error

    def _new_request(self) -> Any:
        request = self.compiled.raw.create_infer_request()
        for blocks in self._blocks:
            request.set_tensor(blocks.name, blocks.tensor)
        return request

    def run(self, rows: Sequence[Row], phase: Phase) -> NDArray[np.float32]:
        packed = pack(rows, phase, hidden=self.hidden, block_tokens=self.block_tokens, num_blocks=self.num_blocks)
        try:
            self._fill("inputs_embeds", packed.embeddings)
            if self._rotary is not None:
                for name, table in zip(self._position_inputs, self._rotary(packed.positions), strict=True):
                    self._fill(name, table[:, None, None, :])
            else:
                self._fill("position_ids", packed.positions)
            self._fill("past_lens", packed.past_lens)
            self._fill("subsequence_begins", packed.subsequence_begins)
            self._fill("block_indices", packed.block_indices)
            self._fill("block_indices_begins", packed.block_indices_begins)
            self._fill("max_context_len", np.array(packed.max_context_len, np.int32))
            self._fill("sample_idx", packed.sample_idx)
            self._request.start_async()  # infer() would copy all outputs once more
            self._request.wait()
            logits: NDArray[np.float32] = self._request.get_tensor("logits").data
        except RuntimeError as error:
            # A request that failed once fails ever after.
            self._request = self._new_request()
            raise self._failure(error) from error
        return logits.reshape(-1, self.vocabulary)[: sum(row.sample for row in rows)]

    def _failure(self, error: RuntimeError) -> InferenceError:
        return InferenceError(
            f"{self.name} failed on {', '.join(self.devices)}: {first_line(error)}",
            fix="run `docvino doctor`, or use --device CPU",
        )

    def _fill(self, name: str, values: NDArray[Any]) -> None:
        """Writes an input in place: a GPU has memory of its own for small inputs, and would copy other arrays there."""
        tensor = self._request.get_tensor(name)
        if tuple(tensor.shape) != values.shape:
            tensor.shape = values.shape
        tensor.data[...] = values

    def wipe(self, blocks: Sequence[int]) -> None:
        try:
            for part in self._blocks:
                part.wipe(blocks)
        except RuntimeError as error:
            raise self._failure(error) from error

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies whole blocks; how keys lie inside one is the device's affair."""
        try:
            for part in self._blocks:
                part.copy(sources, targets)
        except RuntimeError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Gives the device its memory back, the request before what it is bound to."""
        del self._request
        self._blocks.clear()


def needed_rotary(inputs: tuple[str, ...], rotary: Rotary | None, name: str) -> Rotary | None:
    if inputs == ("position_ids",):
        return None
    if rotary is None:
        raise BundleError(f"{name} takes rotary tables, and nothing makes them", fix="convert the model again")
    return rotary


class _HostBlocks:
    """All blocks of one input in this process's memory: pages of zeros that the system hands out when first written."""

    def __init__(self, port: CachePort, count: int) -> None:
        self.name = port.name
        shape = (count, *port.block_shape)
        memory = mmap.mmap(-1, count * port.block_bytes)
        self._values = np.frombuffer(memory, _HOLDERS[port.type_name]).reshape(shape)
        if port.type_name == "bf16":
            self.tensor = ov.Tensor(self._values, ov.Shape(shape), ov.Type.bf16)
        else:
            self.tensor = ov.Tensor(self._values, shared_memory=True)

    def wipe(self, blocks: Sequence[int]) -> None:
        self._values[list(blocks)] = 0

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._values[list(targets)] = self._values[list(sources)]


class _DeviceBlocks:
    """All blocks of one input in a GPU's memory. What lies in host memory would travel both ways at each call."""

    def __init__(self, context: Any, port: CachePort, count: int) -> None:
        self.name = port.name
        self._type = getattr(ov.Type, port.type_name)
        self._shape = port.block_shape
        self.tensor = context.create_tensor(self._type, ov.Shape([count, *port.block_shape]), {})
        self.tensor.copy_from(self._zeros(count))

    def _zeros(self, count: int) -> Any:
        zeros = ov.Tensor(self._type, ov.Shape([count, *self._shape]))
        zeros.data[...] = 0
        return zeros

    def wipe(self, blocks: Sequence[int]) -> None:
        zeros = self._zeros(1)
        for block in blocks:
            self._part(block).copy_from(zeros)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=True):
            self._part(target).copy_from(self._part(source))

    def _part(self, block: int) -> Any:
        begin, end = ov.Coordinate([block, 0, 0, 0]), ov.Coordinate([block + 1, *self._shape])
        return ov.RemoteTensor(self.tensor, begin, end)
