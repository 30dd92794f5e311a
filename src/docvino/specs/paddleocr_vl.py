"""PaddleOCR-VL: where its three versions lie on the hubs, and what their files are.

Left out on purpose: the repositories' Python files (nothing of a model folder is ever run), pictures, and the layout
model inside the repository of v1.

Source: names and roles of files, repositories: spec/paddleocr-vl.md section 1 (model pages). Revisions, sizes and
sha256: pins that several unrelated public projects carry alike, read 2026-11-30; the hubs themselves could not be
reached from where this was written. ModelScope and AI Studio name no commit we know: their branch is held by sha256.
"""

from types import MappingProxyType

from docvino.specs.model import HubFile, HubFolder, Repository


def _repositories(name: str, huggingface_commit: str) -> MappingProxyType[str, Repository]:
    return MappingProxyType(
        {
            "huggingface": Repository(name, huggingface_commit),
            "modelscope": Repository(name, "master"),
            "aistudio": Repository(name, "master"),
        }
    )


# 1.5 and 1.6 differ in their weights only.
_SHARED = (
    HubFile("config.json", 2059, "ce7f4565f8b1db78532ad5d1b9ebe55c2139d49bd4cb04778b580a08a598f171"),
    HubFile("preprocessor_config.json", 641, "111872ab1e8bb7fd040ac5087bfced7ab8f011f02139b088cba294964c3b1d0e"),
    HubFile("tokenizer.json", 11_189_060, "c8a215a59183d0d0781adc33bacd3ce6162716f7fd568fb30234a74d69803a7d"),
    HubFile("tokenizer_config.json", 186_947, "1f979337347cc0cb72a6282d8a23ed183539aa81a87a906f022aee2bab83c7c5"),
    HubFile("chat_template.jinja", 1474, "2f27812dab7f333e471884e0c803d807f11953d5453140dfb1aaba234f872bc8"),
    HubFile("generation_config.json", 133, "a6701d78ab3b4d972307cdec3b69d4c13f46e0d5140514f50ab7d84259324b94"),
    HubFile(
        "processor_config.json", 137, "1568858960a9760c54431dae693a6152e601ff55cdf6d2eab97a4a99958faea0", required=False
    ),
    HubFile(
        "special_tokens_map.json",
        1151,
        "d3a125c03103deb2acaf7730791bdbbf196f620e5a2213b664511ff9b4b25bab",
        required=False,
    ),
    HubFile(
        "added_tokens.json", 25_381, "f59f889088e0fe21c523e7cf121bb6dca3b0bb148cb7159fbb4572c74dfc5644", required=False
    ),
    HubFile(
        "tokenizer.model", 1_614_363, "34ef7db83df785924fb83d7b887b6e822a031c56e15cff40aaf9b982988180df", required=False
    ),
    HubFile("LICENSE", 11_376, "b8c4d7deccd236af023af1c88c4d4e8f0fc2f41914e0fb23a3ec9678fb5a8456", required=False),
)

V1_6 = HubFolder(
    name="paddleocr-vl-1.6",
    title="PaddleOCR-VL 1.6 (0.9 B), weights as published",
    licence="Apache-2.0",
    homepage="https://huggingface.co/PaddlePaddle/PaddleOCR-VL-1.6",
    repositories=_repositories("PaddlePaddle/PaddleOCR-VL-1.6", "c5630abae1d940eafe0697512a0325494b02ab42"),
    files=(
        HubFile("model.safetensors", 1_917_255_968, "85a479d506a11e724e7285d395c551be69f41dbc16b6342d3cacfb189aed71db"),
        *_SHARED,
    ),
)

V1_5 = HubFolder(
    name="paddleocr-vl-1.5",
    title="PaddleOCR-VL 1.5 (0.9 B), weights as published",
    licence="Apache-2.0",
    homepage="https://huggingface.co/PaddlePaddle/PaddleOCR-VL-1.5",
    repositories=_repositories("PaddlePaddle/PaddleOCR-VL-1.5", "2a4195faa5e7914c12f2fc601d72c81caf8d2da5"),
    files=(
        HubFile("model.safetensors", 1_917_255_968, "d557c9d8997ae57ed3b1b33bdf347be878cc335687f32ca105341c16973f8958"),
        *_SHARED,
    ),
)

# Public pins of v1 agree on the tokenizer alone; of the weights they name two different sha256, so none is taken.
V1 = HubFolder(
    name="paddleocr-vl-v1",
    title="PaddleOCR-VL v1 (0.9 B), weights as published",
    licence="Apache-2.0",
    homepage="https://huggingface.co/PaddlePaddle/PaddleOCR-VL",
    repositories=_repositories("PaddlePaddle/PaddleOCR-VL", "7fa00a8c55b735ba51ba49a9058f3f9c57a99a11"),
    files=(
        HubFile("model.safetensors"),
        HubFile("config.json"),
        HubFile("preprocessor_config.json"),
        HubFile("tokenizer.json", 11_187_679, "f90f04fd8e5eb6dfa380f37d10c87392de8438dccb6768a2486b5a96ee76dba6"),
        HubFile("tokenizer_config.json"),
        HubFile("chat_template.jinja"),
        HubFile("generation_config.json"),
        HubFile("processor_config.json", required=False),
        HubFile("special_tokens_map.json", required=False),
        HubFile("added_tokens.json", required=False),
        HubFile("tokenizer.model", required=False),
        HubFile("LICENSE", required=False),
    ),
)
