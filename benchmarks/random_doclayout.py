"""PP-DocLayoutV3 of the published size with random weights: does docvino convert it, compute the same, and how fast?

    python -m pip install torch transformers onnx onnxscript
    python benchmarks/random_doclayout.py FOLDER [--rounds 5]

transformers has the network; around it come the inputs and outputs of the published file (image, im_shape,
scale_factor; rows, counts, masks). It is written as ONNX, docvino converts that, and both read the same drawn page.
Weights are drawn so that signals stay alive and scores differ (what transformers draws gives 300 equal queries), but
they find nothing: regions are compared with those of PyTorch, they mean nothing. Such a network is chaotic: PyTorch's
own boxes change nearly all when its weights are rounded to 16 bits, so that boxes at fp16 cannot be judged by it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

from docvino.codec import doclayout as codec
from docvino.codec.sample import sample_page
from docvino.convert.ir import Conversion, convert
from docvino.device import compile_model
from docvino.document import PageImage, Region
from docvino.errors import ConvertError
from docvino.runtime.doclayout import DocLayout
from docvino.settings import ParseOptions, RuntimeConfig, WeightPrecision
from docvino.specs import doclayout
from docvino.specs.model import DocLayoutFacts, HubFile, HubFolder, HubMember, ModelSpec, Repository

MASK_THRESHOLD = 0.3  # Source: PaddleX 3.7.2, the threshold of PaddleOCR-VL-1.6
QUERIES = 300


class Published(nn.Module):
    """The network between the published inputs and outputs, for one page.

    Source: the contract of PP-DocLayoutV3's inference.yml; image_processing_pp_doclayout_v3 of transformers 5.24.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, image: torch.Tensor, im_shape: torch.Tensor, scale_factor: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        out = self.network(pixel_values=image, return_dict=True)
        scores = torch.sigmoid(out.order_logits[0])
        votes = scores.triu(diagonal=1).sum(dim=0) + (1.0 - scores.transpose(0, 1)).tril(diagonal=-1).sum(dim=0)
        ranks = (votes[None, :] < votes[:, None]).sum(dim=1)
        best, index = torch.topk(torch.sigmoid(out.logits[0]).flatten(), QUERIES)
        classes = out.logits.shape[-1]
        query = index // classes
        x, y, w, h = out.pred_boxes[0][query].unbind(-1)
        height, width = (im_shape / scale_factor)[0].unbind(-1)
        box = torch.stack([(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height], -1)
        rows = torch.cat([(index % classes)[:, None].float(), best[:, None], box, ranks[query][:, None].float()], -1)
        masks = (torch.sigmoid(out.out_masks[0][query]) > MASK_THRESHOLD).to(torch.int32)
        # What does not depend on an input would be no output of the graph but a constant.
        counts = (image.flatten()[:1] * 0).to(torch.int32) + QUERIES
        return rows, counts, masks


def living_network(page: torch.Tensor, seed: int = 20261130) -> nn.Module:
    """V3 with weights under which signals neither die nor explode, and scores of which some are above the threshold."""
    torch.manual_seed(seed)
    network = PPDocLayoutV3ForObjectDetection(PPDocLayoutV3Config(num_labels=len(doclayout.FACTS_V3.labels)))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            module.momentum = None  # running numbers are then means over all passes
        elif isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight, gain=0.7)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    network.eval()
    with torch.no_grad():
        for norm in norms:
            norm.train()
        for shift in range(3):
            network(pixel_values=page.roll(37 * shift, dims=3))
        for norm in norms:
            norm.eval()
    return network


def spec_of(onnx: Path) -> ModelSpec[DocLayoutFacts]:
    """PP-DocLayoutV3's spec with this file in place of the published one."""
    files = (HubFile(onnx.name, onnx.stat().st_size),)
    repositories = MappingProxyType({"huggingface": Repository("random/layout", "0" * 40)})
    folder = HubFolder(doclayout.V3.name, "random weights", "none", "https://example.org", repositories, files)
    return replace(doclayout.V3, source=HubMember(folder, onnx.name))


def differences(mine: list[Region], theirs: list[Region]) -> dict[str, Any]:
    """How regions differ that have the same label and overlap most."""
    boxes, scores, lost = [], [], 0
    for region in theirs:
        same = [other for other in mine if other.label == region.label]
        if not same:
            lost += 1
            continue
        best = min(same, key=lambda other: max(abs(a - b) for a, b in zip(other.bounds, region.bounds, strict=True)))
        boxes.append(max(abs(a - b) for a, b in zip(best.bounds, region.bounds, strict=True)))
        scores.append(abs(best.score - region.score))
    order = [region.label for region in mine] == [region.label for region in theirs]
    return {
        "regions": [len(mine), len(theirs)],
        "lost": lost,
        "same_labels_in_order": order,
        "boxes_max_px": max(boxes, default=0.0),
        "scores_max": max(scores, default=0.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    pixels: NDArray[np.uint8] = sample_page()
    inputs = codec.prepare(pixels, doclayout.FACTS_V3)
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    published = Published(living_network(tensors["image"])).eval()
    with torch.no_grad():
        reference = [output.numpy() for output in published(**tensors)]
    height, width = pixels.shape[:2]
    threshold = float(np.sort(reference[0][:, 1])[-60])  # some sixty rows are above it
    theirs = codec.find(reference, width, height, doclayout.FACTS_V3, threshold=threshold)
    report: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in published.parameters()),
        "scores": [float(value) for value in (reference[0][:, 1].max(), reference[0][:, 1].min())],
        "threshold": threshold,
        "mask_share": float(reference[2].mean()),
    }
    onnx = folder / "sources" / doclayout.V3.name / "inference.onnx"
    onnx.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        published,
        tuple(tensors.values()),
        str(onnx),
        input_names=list(tensors),
        output_names=["boxes", "counts", "masks"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    report["onnx_mb"] = onnx.stat().st_size / 1e6
    spec = spec_of(onnx)
    page, wish = PageImage(0, pixels), ParseOptions(layout_threshold=min(threshold, 0.999))
    stages = {}
    precisions: tuple[WeightPrecision, ...] = ("fp32", "fp16")
    for precision in precisions:
        runtime = RuntimeConfig(data_dir=folder, precision=precision, model_cache=False)
        started = time.perf_counter()
        try:
            done = convert(spec, onnx, runtime, force=True)
        except ConvertError as error:  # a random network makes of a rounded weight another selection of queries
            report[precision] = {"convert_s": time.perf_counter() - started, "refused": str(error)}
            continue
        assert isinstance(done, Conversion)
        stages[precision] = DocLayout(compile_model(done.bundle.graph, spec, runtime), spec)
        report[precision] = {
            "convert_s": time.perf_counter() - started,
            "bundle_mb": done.size_bytes / 1e6,
            "scores_against_onnx": done.comparison.max_abs_diff,
            **differences(stages[precision].detect(page, wish), theirs),
        }
    seconds: dict[str, list[float]] = {name: [] for name in (*stages, "torch")}
    for _ in range(arguments.rounds):
        for name, stage in stages.items():
            started = time.perf_counter()
            stage.detect(page, wish)
            seconds[name].append(time.perf_counter() - started)
        started = time.perf_counter()
        with torch.no_grad():
            published(**tensors)
        seconds["torch"].append(time.perf_counter() - started)
    report["page_s"] = {
        name: {"median": statistics.median(values), "min": min(values)} for name, values in seconds.items()
    }
    report["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
