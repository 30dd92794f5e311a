"""The text decoder of a PaddleOCR-VL folder as GGUF files for llama.cpp: f16, q8_0, q4_k_m. For speed only.

    python benchmarks/peers/make_gguf.py FOLDER OUT

Needs gguf and llama-cpp-python. llama.cpp has no architecture with these positions; `ernie4_5` has the same layers with
plain rotary positions, so the files cost what the model costs and say something else.
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

from docvino.convert.safetensors import Weights, find_files
from docvino.convert.vlm_facts import read_facts
from docvino.convert.vlm_graph import RENAMED

MATRICES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
FORMATS = {"q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M}


def write_f16(folder: Path, path: Path) -> None:
    text = read_facts(folder).text
    writer = gguf.GGUFWriter(path, "ernie4_5")
    writer.add_block_count(text.layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(text.hidden_size)
    writer.add_feed_forward_length(text.intermediate_size)
    writer.add_head_count(text.heads)
    writer.add_head_count_kv(text.kv_heads)
    writer.add_key_length(text.head_dim)
    writer.add_value_length(text.head_dim)
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    writer.add_rope_freq_base(text.rope_theta)
    writer.add_rope_dimension_count(text.head_dim)
    writer.add_vocab_size(text.vocabulary)
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    with Weights(find_files(folder), RENAMED) as weights:

        def matrix(name: str) -> np.ndarray:
            return weights.read(name).astype(np.float16)

        writer.add_tensor("token_embd.weight", matrix("model.embed_tokens.weight"))
        writer.add_tensor("output_norm.weight", weights.read("model.norm.weight"))
        writer.add_tensor("output.weight", matrix("model.embed_tokens.weight" if text.tied_head else "lm_head.weight"))
        for layer in range(text.layers):
            ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
            writer.add_tensor(f"{theirs}attn_norm.weight", weights.read(f"{ours}input_layernorm.weight"))
            writer.add_tensor(f"{theirs}ffn_norm.weight", weights.read(f"{ours}post_attention_layernorm.weight"))
            for their_name, name in MATRICES.items():
                writer.add_tensor(f"{theirs}{their_name}.weight", matrix(f"{ours}{name}.weight"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    whole = args.out / "decoder-f16.gguf"
    write_f16(args.folder, whole)
    for name, kind in FORMATS.items():
        wish = llama_cpp.llama_model_quantize_default_params()
        wish.ftype = kind
        path = args.out / f"decoder-{name}.gguf"
        if llama_cpp.llama_model_quantize(str(whole).encode(), str(path).encode(), ctypes.byref(wish)):
            raise SystemExit(f"llama.cpp cannot write {path}")
        print(f"{path} {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
