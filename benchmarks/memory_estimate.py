"""What models were estimated to need before compiling, beside what the process had taken after the largest input.

    python benchmarks/memory_estimate.py GRAPH.xml [GRAPH.xml ...]

Each GRAPH is one graph of a converted model, on the CPU, in a process of its own: `model.xml` of a model that
`docvino models list` knows, or `vision.xml` of a vision-language model. Prints MiB: the estimate, and how much the
process grew from before the graph was read until it had run at its largest input, at most and in the end.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path


def status(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit("this system does not say how much memory a process has")
    return int(found[1]) / 1024


def child(graph: Path) -> None:
    import numpy as np

    from docvino.bundle import open_vlm_bundle
    from docvino.device import compile_model, compile_part, compiling, target_of
    from docvino.device.memory import MIB, need_of
    from docvino.settings import RuntimeConfig
    from docvino.specs import LAYOUTS, MODELS

    runtime = RuntimeConfig(device="CPU", model_cache=False)
    name = graph.parent.name.rpartition("-")[0]
    import openvino as ov

    read = ov.Core().read_model(graph)
    if graph.stem == "vision":
        largest = open_vlm_bundle(graph.parent).facts.largest_patches()
        slots = 1
    else:
        spec = {**MODELS, **LAYOUTS}[name]
        largest = compiling._largest_input(spec, 4)
        slots = target_of(runtime).slots if spec.role == "text-recognition" else 1
    need = need_of(read, "f32", largest, slots)
    kinds = {port.any_name: port.element_type.to_dtype() for port in read.inputs}
    del read
    before = status("VmRSS")
    model = (
        compile_part(graph, "vision", runtime, largest)
        if graph.stem == "vision"
        else compile_model(graph, spec, runtime)
    )
    inputs = {key: np.zeros(shape, kinds[key]) for key, shape in largest.items()}
    for _ in range(2):
        list(model.run_all([inputs] * slots))
    print(
        f"| {graph.parent.name} {graph.stem} | {slots} x {next(iter(largest.values()))} | {need.total / MIB:.0f} | "
        f"{status('VmHWM') - before:.0f} | {status('VmRSS') - before:.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.graphs[0])
        return
    print("| graph | largest input | estimated | grown at most | in the end |\n|---|---|---|---|---|", flush=True)
    for graph in args.graphs:
        subprocess.run([sys.executable, __file__, "--child", str(graph)], check=True, env=os.environ)


if __name__ == "__main__":
    main()
