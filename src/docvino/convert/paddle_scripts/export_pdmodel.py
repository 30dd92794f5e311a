"""Runs in toolchain pdmodel: graph.pdmodel weights.pdiparams out.onnx opset -> an ONNX file.

The package paddle2onnx 1.3.1 imports paddle, its compiled part does not: that one is loaded by its path.
Source: paddle2onnx 1.3.1, command.py (the arguments of its own `program2onnx`, opset not upgraded silently).
"""

import importlib.util
import sys
from pathlib import Path


def load_converter():
    package = importlib.util.find_spec("paddle2onnx")
    (folder,) = package.submodule_search_locations
    (library,) = [*Path(folder).glob("paddle2onnx_cpp2py_export*.so"), *Path(folder).glob("*cpp2py_export*.pyd")]
    spec = importlib.util.spec_from_file_location("paddle2onnx_cpp2py_export", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    graph, weights, target, opset = sys.argv[1:]
    converter = load_converter()
    model = converter.export(
        graph,
        weights,
        int(opset),
        False,  # auto_upgrade_opset: the opset that was asked for, or none
        False,  # verbose
        True,  # enable_onnx_checker
        True,  # enable_experimental_op
        True,  # enable_optimize
        {},  # custom operators
        "onnxruntime",  # deploy_backend
        "",  # calibration file
        "",  # external file
        False,  # export_fp16_model
    )
    if not model:
        sys.exit("paddle2onnx gave an empty model")
    Path(target).write_bytes(model)


main()
