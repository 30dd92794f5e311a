"""Runs in toolchain pir: graph (.json or .pdmodel), weights.pdiparams, out.onnx, opset -> an ONNX file."""

import sys
from pathlib import Path

import paddle2onnx


def main():
    graph, weights, target, opset = sys.argv[1:]
    paddle2onnx.export(
        graph,
        weights,
        target,
        opset_version=int(opset),
        auto_upgrade_opset=False,
        # Neither of its two optimisers: folding takes 20 s, and OpenVINO folds.
        optimize_tool="none",
    )
    if not Path(target).is_file():
        sys.exit("paddle2onnx wrote no file")


main()
