"""One engine in one process: reads tasks from standard input, answers each with one line of JSON. See compare_vlm.py.

    worker.py docvino FOLDER PRECISION EXECUTION      a folder of bundles (`docvino convert`), name `model`
    worker.py stateful FOLDER PRECISION EXECUTION     the same graphs one crop at a time, without docvino's engine
    worker.py transformers FOLDER DTYPE               a folder from a hub, attention sdpa
    worker.py llama FILE                              a GGUF of the decoder

Tasks: `decode ROWS`, seconds of a step with ROWS sequences of 300 tokens; `prefill TOKENS`, seconds; `vision PATCHES`,
seconds of one crop; `page`, seconds of the 20 crops of `PAGE` with NEW_TOKENS new tokens each; `rss`, peak MiB.
"""

from __future__ import annotations

import copy
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from docvino.bench.vlm import CONTEXT, GRIDS, STEPS, squares

# Rows and columns of patches: what a page of text comes to.
PAGE = [(24, 24)] * 12 + [(30, 40)] * 6 + [(50, 60)] * 2
NEW_TOKENS = 70
Task = Callable[[int], float]


def picture(grid: tuple[int, int], seed: int = 0) -> np.ndarray:
    return squares(grid, 14, seed)


def docvino(folder: str, precision: str, execution: str) -> dict[str, Task]:
    from docvino.bench.vlm import Steps
    from docvino.bundle import bundle_folder, open_vlm_bundle
    from docvino.document import Crop
    from docvino.runtime.stages import Clock
    from docvino.runtime.vlm import VlmReader
    from docvino.settings import ParseOptions, RuntimeConfig

    bundle = open_vlm_bundle(bundle_folder(Path(folder), "model", precision))
    runtime = RuntimeConfig(
        precision=precision,  # type: ignore[arg-type]
        execution=execution,  # type: ignore[arg-type]
        data_dir=Path(folder),
        model_cache=False,
        max_rows=32,
    )
    reader = VlmReader.open(bundle, runtime)[0]
    steps = Steps(reader, bundle.facts)

    def page(_: int) -> float:
        crops = [Crop(picture(grid, seed), "ocr", ()) for seed, grid in enumerate(PAGE)]
        started = time.perf_counter()
        answers = reader.read(crops, ParseOptions(max_new_tokens=NEW_TOKENS, loop_guard=False), Clock())
        spent = time.perf_counter() - started
        assert sum(answer.tokens for answer in answers) == NEW_TOKENS * len(PAGE), [a.tokens for a in answers]
        return spent

    return {"decode": steps.decode, "prefill": steps.prefill, "vision": steps.vision, "page": page}


def stateful(folder: str, precision: str, execution: str) -> dict[str, Task]:
    from docvino.bundle import VLM_PARTS, bundle_folder, open_vlm_bundle
    from docvino.codec.prompt import Tokenizer
    from docvino.device import compile_part
    from docvino.settings import RuntimeConfig
    from docvino.stateful import StatefulReader

    bundle = open_vlm_bundle(bundle_folder(Path(folder), "model", precision))
    runtime = RuntimeConfig(execution=execution, model_cache=False)  # type: ignore[arg-type]
    parts = [compile_part(bundle.part(part), part, runtime) for part in VLM_PARTS]
    reader = StatefulReader(*parts, Tokenizer.open(bundle.tokenizer), bundle.facts)

    def page(_: int) -> float:
        crops = [picture(grid, seed) for seed, grid in enumerate(PAGE)]
        started = time.perf_counter()
        answers = [reader.read(crop, "ocr", NEW_TOKENS) for crop in crops]
        spent = time.perf_counter() - started
        assert sum(len(answer.ids) for answer in answers) == NEW_TOKENS * len(PAGE)
        return spent

    return {"page": page}


def transformers(folder: str, dtype: str) -> dict[str, Task]:
    import torch
    from transformers import PaddleOCRVLForConditionalGeneration

    from docvino.codec import vlm
    from docvino.codec.prompt import Tokenizer, build_prompt
    from docvino.convert.vlm_facts import read_facts

    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    model = PaddleOCRVLForConditionalGeneration.from_pretrained(folder, dtype=kind, attn_implementation="sdpa").eval()
    facts, tokenizer = read_facts(Path(folder)), Tokenizer.open(Path(folder) / "tokenizer.json")
    hidden = facts.text.hidden_size

    @torch.no_grad()
    def forward(rows: int, tokens: int, past: int, known: tuple[str, Any] | None) -> tuple[float, tuple[str, Any]]:
        embeds = torch.randn(rows, tokens, hidden, dtype=kind) * 0.02
        positions = torch.arange(past, past + tokens).view(1, 1, -1).expand(3, rows, -1)
        seen = torch.ones(rows, past + tokens, dtype=torch.long)
        memory = {} if known is None else {known[0]: known[1]}
        started = time.perf_counter()
        output = model(
            inputs_embeds=embeds,
            position_ids=positions,
            attention_mask=seen,
            use_cache=True,
            logits_to_keep=1,
            **memory,
        )
        spent = time.perf_counter() - started
        name = "cache" if hasattr(output, "cache") else "past_key_values"  # renamed within transformers 5
        return spent, (name, getattr(output, name))

    @cache
    def context() -> tuple[str, Any]:
        return forward(1, CONTEXT, 0, None)[1]

    def decode(rows: int) -> float:
        memory = copy.deepcopy(context())
        memory[1].batch_repeat_interleave(rows)
        times = []
        for step in range(STEPS + 1):
            spent, memory = forward(rows, 1, CONTEXT + step, memory)
            times.append(spent)
        return statistics.median(times[1:])

    @torch.no_grad()
    def see(pixels: np.ndarray) -> tuple[Any, tuple[int, int]]:
        patches = vlm.cut(pixels, facts)
        raster = np.empty_like(patches.pixel_values[0])
        raster[vlm.raster_order(patches.grid)] = patches.pixel_values[0]
        return torch.from_numpy(raster).reshape(-1, 3, 14, 14).to(kind), patches.grid

    @torch.no_grad()
    def vision(count: int) -> float:
        pixels, grid = see(picture(GRIDS[count]))
        started = time.perf_counter()
        model.model.get_image_features(pixels, torch.tensor([[1, *grid]]))
        return time.perf_counter() - started

    @torch.no_grad()
    def page(_: int) -> float:
        crops = [picture(grid, seed) for seed, grid in enumerate(PAGE)]
        started = time.perf_counter()
        for crop in crops:
            pixels, grid = see(crop)
            prompt = build_prompt(tokenizer, "ocr", grid, facts)
            ids = torch.from_numpy(prompt.ids)[None]
            made = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                pixel_values=pixels,
                image_grid_thw=torch.tensor([[1, *grid]]),
                mm_token_type_ids=(ids == facts.tokens.image).int(),
                max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS,
                do_sample=False,
                use_cache=True,
                pad_token_id=0,
            )
            assert made.shape[1] in (ids.shape[1] + NEW_TOKENS, NEW_TOKENS), made.shape
        return time.perf_counter() - started

    return {"decode": decode, "prefill": lambda tokens: forward(1, tokens, 0, None)[0], "vision": vision, "page": page}


def llama(file: str) -> dict[str, Task]:
    import ctypes

    import llama_cpp as cpp

    @cpp.llama_log_callback
    def quiet(level: int, text: bytes, data: Any) -> None:
        pass

    cpp.llama_backend_init()
    cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    wish = cpp.llama_model_default_params()
    wish.n_gpu_layers = 0
    model = cpp.llama_model_load_from_file(file.encode(), wish)
    made = cpp.llama_context_default_params()
    made.n_ctx, made.n_batch, made.n_ubatch, made.n_seq_max = 12_288, 2048, 512, 32
    made.n_threads = made.n_threads_batch = 2
    if hasattr(made, "kv_unified"):
        made.kv_unified = True
    context = cpp.llama_init_from_model(model, made)
    memory, batch = cpp.llama_get_memory(context), cpp.llama_batch_init(2048, 0, 32)
    random = np.random.default_rng(0)

    def run(tokens: int, positions: list[int], sequences: list[int], wanted: list[bool]) -> float:
        batch.n_tokens = tokens
        for place, token in enumerate(random.integers(5, 90_000, tokens)):
            batch.token[place], batch.pos[place] = int(token), positions[place]
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequences[place]
            batch.logits[place] = int(wanted[place])
        started = time.perf_counter()
        if cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        cpp.llama_get_logits(context)
        return time.perf_counter() - started

    def prefill(tokens: int) -> float:
        cpp.llama_memory_clear(memory, True)
        return run(tokens, list(range(tokens)), [0] * tokens, [False] * (tokens - 1) + [True])

    def decode(rows: int) -> float:
        prefill(CONTEXT)
        for sequence in range(1, rows):
            cpp.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
        times = [run(rows, [CONTEXT + step] * rows, list(range(rows)), [True] * rows) for step in range(STEPS + 1)]
        return statistics.median(times[1:])

    return {"decode": decode, "prefill": prefill}


def main() -> None:
    kind, *words = sys.argv[1:]
    started = time.perf_counter()
    tasks = {"docvino": docvino, "stateful": stateful, "transformers": transformers, "llama": llama}[kind](*words)
    tasks["rss"] = lambda _: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.perf_counter() - started, "tasks": list(tasks)}), flush=True)
    for line in sys.stdin:
        task, _, number = line.strip().partition(" ")
        print(json.dumps(tasks[task](int(number or 0))), flush=True)


if __name__ == "__main__":
    main()
