"""Both forms of a decoder on this machine's CPU, with a small random network."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from docvino.decoder import choose, paged
from docvino.decoder.choose import choose_decoder
from docvino.decoder.contract import MAX_ROWS, PREFILL_TOKENS, Decoder, KvSettings, Row, pack, padding_blocks
from docvino.decoder.paged import MIB, CachePort, PagedDecoder, block_tokens_of, to_paged
from docvino.decoder.stateful import StatefulDecoder
from docvino.device import activation_group
from docvino.errors import BundleError, ConfigError, DeviceError, GenerationError, InferenceError
from docvino.runtime.engine import Engine
from docvino.runtime.scheduler import EngineLimits
from docvino.runtime.sequence import Generation, Request
from docvino.settings import RuntimeConfig
from tiny_decoder import HIDDEN, KV_HEADS, LAYERS, STOP, VOCABULARY, embed, prompt, rotary, save_tiny_decoder

RUNTIME = RuntimeConfig(model_cache=False)
KV = {kind: KvSettings(budget_mib=4, precision=kind) for kind in ("u8", "f16", "f32")}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("decoders")
    save_tiny_decoder(made / "f32.xml")
    save_tiny_decoder(made / "int8.xml", int8=True)
    return made


@pytest.fixture(scope="module")
def load(folder: Path) -> Callable[..., PagedDecoder]:
    def loaded(weights: str = "f32", kv: str = "f32") -> PagedDecoder:
        return PagedDecoder(folder / f"{weights}.xml", "toy", RUNTIME, KV[kv], rotary)

    return loaded


def requests(count: int, new: int = 12) -> list[Request]:
    lengths = [5, 31, 32, 33, 64, 90, 127, 150, 260]
    return [
        Request(*prompt(lengths[seed % len(lengths)], seed), max_new_tokens=new, stop_tokens=STOP)
        for seed in range(count)
    ]


def generate(decoder: Decoder, work: list[Request], rows: int, tokens: int = 128) -> list[Generation]:
    outcomes = Engine(decoder, embed, EngineLimits(rows, tokens)).generate_all(work)
    assert all(isinstance(outcome, Generation) for outcome in outcomes)
    return outcomes  # type: ignore[return-value]


@pytest.mark.parametrize(("weights", "kv"), [("f32", "f32"), ("f32", "u8"), ("int8", "u8"), ("int8", "f16")])
def test_a_text_is_the_same_alone_and_among_others_bit_for_bit(
    load: Callable[..., PagedDecoder], weights: str, kv: str
) -> None:
    decoder, work = load(weights, kv), requests(36)
    one_by_one = generate(decoder, work, rows=1)
    assert len({one.tokens for one in one_by_one}) > 18
    for rows, tokens in ((2, 128), (8, 128), (32, 128)):
        # Log-probabilities are compared, too: they are floats, so equal means equal in every bit that counts.
        assert generate(decoder, work, rows, tokens) == one_by_one
    assert generate(decoder, work[::-1], 5) == one_by_one[::-1]


@pytest.mark.parametrize(("kv", "tolerance"), [("f32", 1e-4), ("u8", 0.1)])
def test_the_paged_form_says_what_the_stateful_one_says(folder: Path, kv: str, tolerance: float) -> None:
    both = [kind(folder / "f32.xml", "toy", RUNTIME, KV[kv], rotary) for kind in (PagedDecoder, StatefulDecoder)]
    texts = [generate(decoder, requests(9), rows=16) for decoder in both]
    for one, other in zip(*texts, strict=True):
        # Random networks hesitate: with rounded keys, texts may part where two tokens are nearly alike.
        same = next((i for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)) if a != b), 99)
        assert same > (98 if kv == "f32" else 0)
        assert np.allclose(one.logprobs[:same], other.logprobs[:same], atol=tolerance)


@pytest.mark.parametrize("kv", ["f32", "f16", "u8"])
def test_numbers_that_are_none_stay_in_their_crop(load: Callable[..., PagedDecoder], kv: str) -> None:
    decoder, work = load("int8", kv), requests(12)
    clean = generate(decoder, work, rows=4)
    spoilt = list(work)
    for place in (2, 7):
        embeddings = work[place].embeddings.copy()
        embeddings[3:] = np.nan if place == 2 else np.inf
        spoilt[place] = dataclasses.replace(work[place], embeddings=embeddings)
    for _ in range(2):  # the second time in blocks that held what is no number
        outcomes = generate(decoder, spoilt, rows=4)
        assert [outcomes[2].finish, outcomes[7].finish] == ["nonfinite"] * 2
        assert all(outcomes[place] == clean[place] for place in range(12) if place not in (2, 7))
    assert generate(decoder, work, rows=4) == clean


def test_wiping_reaches_the_blocks_that_are_named(load: Callable[..., PagedDecoder]) -> None:
    decoder = load()
    decoder.run([Row(*prompt(100, 0), 0, [7, 3, 5, 4])], "prefill")
    arrays = [blocks._values for blocks in decoder._blocks]
    assert all(array[block].any() for array in arrays for block in (3, 4, 5, 7))
    decoder.wipe([3, 7])
    assert not any(array[block].any() for array in arrays for block in (3, 7))
    assert all(array[block].any() for array in arrays for block in (4, 5))


def test_after_a_failure_a_decoder_goes_on(load: Callable[..., PagedDecoder], folder: Path) -> None:
    for decoder in (load(), StatefulDecoder(folder / "f32.xml", "toy", RUNTIME, KV["f32"], rotary)):
        work = requests(3)
        clean = generate(decoder, work, rows=4)
        infer = decoder._request

        class Broken:
            def __getattr__(self, name: str, request: object = infer) -> object:
                if name in ("infer", "wait"):
                    raise RuntimeError("CL_OUT_OF_RESOURCES")
                return getattr(request, name)

        decoder._request = Broken()
        with pytest.raises(InferenceError, match="toy failed on CPU: CL_OUT_OF_RESOURCES"):
            generate(decoder, work, rows=4)
        assert generate(decoder, work, rows=4) == clean


def test_the_stateful_form_refuses_a_second_sequence(folder: Path) -> None:
    decoder = StatefulDecoder(folder / "f32.xml", "toy", RUNTIME, KV["f32"], rotary)
    decoder.run([Row(*prompt(9, 0), 0, [0])], "prefill")
    with pytest.raises(GenerationError, match="holds 9"):
        decoder.run([Row(*prompt(1, 0), 5, [0])], "decode")


class TestTables:
    """What a decoder is told is checked before a kernel sees it."""

    def packed(self, *rows: Row, phase: str = "prefill") -> object:
        return pack(rows, phase, hidden=HIDDEN, block_tokens=32, num_blocks=10)  # type: ignore[arg-type]

    def test_rows_are_packed(self) -> None:
        first, second = Row(*prompt(70, 0), 32, [4, 2, 9, 1]), Row(*prompt(90, 1), 0, [5, 6, 7], sample=False)
        call = self.packed(first, second)
        assert call.past_lens.tolist() == [32, 0]
        assert call.subsequence_begins.tolist() == [0, 70, 160]  # 160 needs no rounding up
        assert call.block_indices.tolist() == [4, 2, 9, 1, 5, 6, 7]
        assert call.block_indices_begins.tolist() == [0, 4, 7]
        assert call.max_context_len == 102
        assert call.sample_idx.tolist() == [69, 159]  # two at least
        assert np.array_equal(call.embeddings[70:], second.embeddings)
        assert np.array_equal(call.positions[:, :70], first.positions)
        assert {a.dtype for a in (call.past_lens, call.subsequence_begins, call.block_indices)} == {np.dtype(np.int32)}

    def test_small_calls_are_filled_up_with_blocks_of_the_decoder(self) -> None:
        one = self.packed(Row(*prompt(1, 0), 40, [1, 2]), phase="decode")
        assert one.subsequence_begins.tolist() == [0, 1, 2]
        assert one.block_indices.tolist() == [1, 2, 10]
        short = self.packed(Row(*prompt(9, 0), 0, [1]))
        assert short.subsequence_begins.tolist() == [0, 9, PREFILL_TOKENS]
        assert short.block_indices.tolist() == [1, 10, 11, 12, 13]
        assert padding_blocks(32) == 4
        longer = self.packed(Row(*prompt(129, 0), 0, [1, 2, 3, 4, 5]))
        assert longer.subsequence_begins.tolist() == [0, 129, 160]

    @pytest.mark.parametrize(
        ("row", "phase", "says"),
        [
            (Row(*prompt(70, 0), 0, [1, 2]), "prefill", "2 blocks of 32 tokens for 70"),
            (Row(*prompt(70, 0), 0, [1, 2, 10]), "prefill", "outside 0..9"),
            (Row(*prompt(70, 0), 0, [1, -1, 2]), "prefill", "outside 0..9"),
            (Row(*prompt(70, 0), 0, [1, 2, 1]), "prefill", "share"),
            (Row(*prompt(70, 0), -1, [1, 2, 3]), "prefill", "after -1"),
            (Row(*prompt(2, 0), 0, [1]), "decode", "2 tokens after 0 in a call of decode"),
            (Row(prompt(2, 0)[0], prompt(3, 0)[1], 0, [1]), "prefill", "positions"),
            (Row(prompt(2, 0)[0][:, :5], prompt(2, 0)[1], 0, [1]), "prefill", "embeddings"),
            (Row(prompt(2, 0)[0][:0], prompt(2, 0)[1][:, :0], 0, [1]), "prefill", "embeddings"),
        ],
    )
    def test_tables_that_contradict_themselves(self, row: Row, phase: str, says: str) -> None:
        with pytest.raises(GenerationError, match=says):
            self.packed(row, phase=phase)

    def test_rows_must_not_share_blocks(self) -> None:
        with pytest.raises(GenerationError, match="share"):
            self.packed(Row(*prompt(9, 0), 0, [1]), Row(*prompt(9, 0), 0, [1]))

    def test_too_many_or_no_rows(self) -> None:
        with pytest.raises(GenerationError, match="without rows"):
            self.packed()
        rows = [Row(*prompt(1, 0), 0, [block]) for block in range(MAX_ROWS + 1)]
        with pytest.raises(GenerationError, match="65 rows"):
            pack(rows, "decode", hidden=HIDDEN, block_tokens=32, num_blocks=100)


class TestBudget:
    def test_blocks_follow_from_the_budget(self, folder: Path) -> None:
        for kv, token_bytes in (("f32", 4 * 32), ("f16", 2 * 32), ("u8", 32)):
            decoder = PagedDecoder(folder / "f32.xml", "toy", RUNTIME, KvSettings(3, kv), rotary)  # type: ignore[arg-type]
            stored = (decoder.num_blocks + padding_blocks(decoder.block_tokens)) * decoder.block_bytes
            assert 3 * MIB - decoder.block_bytes < stored <= 3 * MIB
            least = LAYERS * 2 * KV_HEADS * token_bytes * decoder.block_tokens
            assert least <= decoder.block_bytes <= 1.5 * least

    def test_a_budget_without_room_names_the_setting(self) -> None:
        with pytest.raises(ConfigError, match="kv_cache_mib 1 holds no block") as caught:
            paged.blocks_of_budget(KvSettings(1), block_bytes=MIB, block_tokens=32)
        assert "kv_cache_mib to 5" in caught.value.fix
        with pytest.raises(ConfigError, match="kv_cache_mib"):
            KvSettings(0)

    def test_memory_that_no_block_has_touched_is_not_taken(self, folder: Path) -> None:
        before = _resident_mib()
        decoder = PagedDecoder(folder / "f32.xml", "toy", RUNTIME, KvSettings(4096, "f32"), rotary)
        assert decoder.num_blocks * decoder.block_bytes > 4000 * MIB
        generate(decoder, requests(4), rows=4)
        assert _resident_mib() - before < 400


@pytest.mark.slow
def test_memory_stays_flat_over_many_ragged_texts(load: Callable[..., PagedDecoder]) -> None:
    decoder = load("int8", "u8")
    random = np.random.default_rng(0)

    def round_of_texts() -> None:
        shapes = zip(random.integers(5, 600, 60).tolist(), random.integers(1, 30, 60).tolist(), strict=True)
        work = [Request(*prompt(length, seed), new, STOP) for seed, (length, new) in enumerate(shapes)]
        generate(decoder, work, rows=16, tokens=512)

    for _ in range(4):
        round_of_texts()
    warm = _resident_mib()
    for _ in range(8):
        round_of_texts()
    assert _resident_mib() < 1.02 * warm


def _resident_mib() -> float:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / MIB


class TestChoice:
    def choose(self, folder: Path, *, allow_stateful: bool = False, kv: str = "u8") -> tuple[Decoder, object]:
        return choose_decoder(
            folder / "int8.xml",
            "toy",
            RUNTIME,
            KV[kv],
            embed=embed,
            rotary=rotary,
            allow_stateful=allow_stateful,
        )

    def test_the_paged_form_is_taken_when_it_answers_like_the_stateful_one(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        for kv in KV:
            decoder, choice = self.choose(folder, kv=kv)
            assert (decoder.form, choice.form, choice.rows_agree, choice.kv_type) == ("paged", "paged", True, kv)
            assert choice.difference < 1e-4
            assert choice.rounding < 0.1
        assert "toy: paged decoder on CPU, answers like the stateful form" in caplog.text

    def test_wrong_answers_are_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        # Positions that are lost: what angles in half precision do to a GPU.
        right = paged.pack
        monkeypatch.setattr(
            paged, "pack", lambda rows, phase, **more: right([_unplaced(row) for row in rows], phase, **more)
        )
        with pytest.raises(DeviceError, match="paged form of toy cannot be used on CPU: differs") as caught:
            self.choose(folder)
        assert "allow the stateful form" in caught.value.fix
        decoder, choice = self.choose(folder, allow_stateful=True)
        assert (decoder.form, choice.form) == ("stateful", "stateful")
        assert choice.difference > 100 * choose.TOLERANCE_EXACT
        assert "WARNING" in caplog.text
        assert "stateful decoder on CPU, the paged form cannot be used: differs" in caplog.text
        assert generate(decoder, requests(3), rows=8)

    def test_a_sequence_that_misses_its_last_token_is_seen(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Far less than rounded keys and values may differ: the forms are compared with nothing rounded.
        right = paged.pack
        monkeypatch.setattr(
            paged, "pack", lambda rows, phase, **more: right([_shortened(row) for row in rows], phase, **more)
        )
        with pytest.raises(DeviceError, match="differs from the stateful form by"):
            self.choose(folder)

    def test_rounding_that_costs_too_much_is_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choose, "TOLERANCE_ROUNDED", 1e-6)
        with pytest.raises(DeviceError, match=r"differs by .* when keys, values and activations are rounded"):
            self.choose(folder)

    def test_an_openvino_without_the_pass(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openvino._offline_transformations", None)
        with pytest.raises(DeviceError, match="has no paged attention transformation"):
            self.choose(folder)
        assert self.choose(folder, allow_stateful=True)[1].form == "stateful"

    def test_an_untested_openvino_is_said(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(paged, "openvino_version", lambda: "2027.1.0")
        assert callable(paged.paged_attention_pass())
        assert "tested with OpenVINO 2026.4" in caplog.text

    def test_a_budget_below_one_crop(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choose, "_PROMPTS", (2000, 2000))
        with pytest.raises(ConfigError, match="kv_cache_mib 4 holds"):
            self.choose(folder, kv="f32")


def _unplaced(row: Row) -> Row:
    return dataclasses.replace(row, positions=np.zeros_like(row.positions))


def _shortened(row: Row) -> Row:
    return dataclasses.replace(row, past=max(0, row.past - 1))


class TestForeignModels:
    def test_files_that_are_no_decoder(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "cut.xml").write_text("<net")
        with pytest.raises(BundleError, match=r"cannot read cut\.xml"):
            PagedDecoder(tmp_path / "cut.xml", "toy", RUNTIME, KV["u8"], rotary)
        x = ov.opset13.parameter([1, 3], np.float32, name="x")
        x.output(0).set_names({"x"})
        ov.save_model(ov.Model([ov.opset13.relu(x)], [x]), tmp_path / "other.xml")
        with pytest.raises(BundleError, match="no text decoder"):
            StatefulDecoder(tmp_path / "other.xml", "toy", RUNTIME, KV["u8"], rotary)
        with pytest.raises(BundleError, match="rotary tables"):
            PagedDecoder(folder / "f32.xml", "toy", RUNTIME, KV["u8"])

    def test_a_decoder_that_gives_all_logits(self, tmp_path: Path) -> None:
        path = save_tiny_decoder(tmp_path / "all.xml", last_token=False)
        with pytest.raises(BundleError, match="0 places that select the last token"):
            to_paged(ov.Core().read_model(path))

    def test_a_device_that_refuses_and_one_that_is_not_there(self, folder: Path) -> None:
        with pytest.raises(DeviceError, match=r"no device 'GPU\.7'"):
            PagedDecoder(folder / "f32.xml", "toy", RuntimeConfig(device="GPU.7"), KV["u8"], rotary)
        # A CPU without bf16 computes in f32 instead, one with it has no f32 keys and values beside.
        with pytest.raises(DeviceError, match="toy"):
            PagedDecoder(folder / "f32.xml", "toy", RuntimeConfig(execution="bf16"), KV["f32"], rotary)

    def test_layouts_of_gpus(self) -> None:
        """Source: intel_gpu paged_attention.hpp: transposed keys, scales along tokens or along the head."""
        ports = (CachePort("key_cache.0", "i8", (2, 128, 20)), CachePort("value_cache.0", "i8", (2, 16, 132)))
        assert block_tokens_of(ports) == 16
        assert sum(port.block_bytes for port in ports) * 18 == 168_192
        with pytest.raises(DeviceError, match="value blocks of"):
            block_tokens_of((*ports, CachePort("value_cache.1", "i8", (2, 32, 132))))

    def test_the_group_of_activations_follows_the_weights(self, folder: Path) -> None:
        core = ov.Core()
        assert activation_group(core.read_model(folder / "f32.xml")) is None
        assert activation_group(core.read_model(folder / "int8.xml")) == 128

    def test_the_vocabulary(self, load: Callable[..., PagedDecoder]) -> None:
        assert (load().hidden, load().vocabulary, load().block_tokens) == (HIDDEN, VOCABULARY, 32)
