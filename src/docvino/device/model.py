"""Compiled models: what they came to be, and how they are run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.device.cache import Entry
from docvino.device.core import first_line
from docvino.device.devices import Target
from docvino.device.memory import Promise
from docvino.device.profiles import Profile
from docvino.errors import InferenceError

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A model as a device has it.

    raw          OpenVINO's own compiled model
    target       what was asked for; `devices` and `execution_precision` are what the device says it does
    from_cache   whether it was loaded and not compiled
    entry, test  where its self-test is remembered, and under which key
    promised     the memory that it may take while it is held
    """

    raw: Any
    name: str
    target: Target
    from_cache: bool
    entry: Entry
    test: str
    promised: Promise

    @property
    def devices(self) -> tuple[str, ...]:
        return execution_devices(self.raw)

    @property
    def execution_precision(self) -> str:
        return execution_precision(self.raw)


def execution_devices(raw: Any) -> tuple[str, ...]:
    return tuple(str(device) for device in raw.get_property("EXECUTION_DEVICES"))


def execution_precision(raw: Any) -> str:
    """The arithmetic the plugin really uses: it answers f32 where it has no bf16 or f16."""
    return str(raw.get_property("INFERENCE_PRECISION_HINT").to_string())


def was_cached(raw: Any) -> bool:
    """Whether OpenVINO loaded a compiled model instead of compiling one."""
    try:
        return bool(raw.get_property("LOADED_FROM_CACHE"))
    except RuntimeError:  # a plugin without a cache does not know the question
        return False


class Model:
    """A compiled model with one pool of inference requests that are reused for its whole life.

    Not for several threads at once.
    """

    def __init__(self, compiled: Compiled, slots: int) -> None:
        self.compiled = compiled
        self.name, self.slots = compiled.name, slots
        self.devices, self.execution_precision = compiled.devices, compiled.execution_precision
        self._outputs = [port.get_any_name() for port in compiled.raw.outputs]
        # Requests of OpenVINO's own and no AsyncInferQueue: one that is dropped after a failure crashes the process.
        self._requests = [compiled.raw.create_infer_request() for _ in range(slots)]
        self._request = self._requests[0]

    @property
    def profile(self) -> Profile:
        """How the device that it runs on is used."""
        return self.compiled.target.device.profile

    def reset_state(self) -> None:
        """A model that remembers (a decoder with its keys and values) begins anew."""
        self._request.reset_state()

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """One inference. The outputs are copies.

        Raises: InferenceError when the device fails or an output is not finite.
        """
        try:
            # Inputs are copied: shared memory of the caller would stay bound to the request after the call.
            self._request.infer(dict(inputs), share_inputs=False)
        except RuntimeError as error:
            raise self._failure(error) from error
        return self._copy_outputs(self._request)

    def run_all(
        self,
        batches: Iterable[Mapping[str, NDArray[np.float32]]],
        take: Callable[[Tensors], Tensors] | None = None,
    ) -> Iterator[Tensors]:
        """Inferences of all batches, several in flight; outputs come in the order of the batches.

        Batches are pulled as slots become free, so preparing one overlaps with running another.

        take   makes of outputs what is wanted of them, where copies of all would be large. It gets views that the next
               inference overwrites; what it gives is what is checked, so it must carry a NaN on

        Raises: InferenceError when the device fails or an output is not finite.
        """
        running: deque[Any] = deque()
        try:
            for index, batch in enumerate(batches):
                if len(running) == len(self._requests):
                    yield self._finished(running.popleft(), take)
                request = self._requests[index % len(self._requests)]
                self._start(request, batch)
                running.append(request)
            while running:
                yield self._finished(running.popleft(), take)
        finally:
            # Given up or failed: what is on its way must land before its request is used again.
            for request in running:
                with suppress(RuntimeError):
                    request.wait()

    def _start(self, request: Any, batch: Mapping[str, NDArray[np.float32]]) -> None:
        try:
            request.start_async(dict(batch), share_inputs=False)
        except RuntimeError as error:
            raise self._failure(error) from error

    def _finished(self, request: Any, take: Callable[[Tensors], Tensors] | None) -> Tensors:
        try:
            request.wait()
        except RuntimeError as error:
            raise self._failure(error) from error
        if take is None:
            return self._copy_outputs(request)
        return self._checked(take({name: request.get_tensor(name).data for name in self._outputs}))

    def _copy_outputs(self, request: Any) -> Tensors:
        return self._checked({name: request.get_tensor(name).data.copy() for name in self._outputs})

    def _checked(self, outputs: Tensors) -> Tensors:
        for name, values in outputs.items():
            # A sum is not finite when any term is not: one pass, no mask of the size of the tensor.
            with np.errstate(invalid="ignore"):
                total = values.sum(dtype=np.float64)
            if not np.isfinite(total):
                raise InferenceError(
                    f"{self.name} gave numbers that are not finite in output {name!r} on {', '.join(self.devices)}",
                    fix="run `docvino verify`, or use --execution f32",
                )
        return outputs

    def _failure(self, error: RuntimeError) -> InferenceError:
        return InferenceError(
            f"{self.name} failed on {', '.join(self.devices)}: {first_line(error)}",
            fix="run `docvino doctor` and `docvino verify`, or use --device CPU",
        )
