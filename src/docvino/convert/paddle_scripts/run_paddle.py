"""Runs in toolchain pir: graph (.json or .pdmodel) weights.pdiparams in.npz out.npz -> the outputs of Paddle itself.

Arrays are named by the graph's inputs and outputs. oneDNN is off: it computes other roundings.
"""

import sys

import numpy as np
from paddle import inference


def main():
    graph, weights, given, target = sys.argv[1:]
    config = inference.Config(graph, weights)
    config.disable_gpu()
    config.disable_mkldnn()
    if graph.endswith(".json"):
        config.enable_new_executor(True)
        config.enable_new_ir(True)
    config.switch_ir_optim(False)
    predictor = inference.create_predictor(config)
    with np.load(given) as arrays:
        for name in predictor.get_input_names():
            predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(arrays[name]))
    predictor.run()
    np.savez(target, **{name: predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()})


main()
