"""Facts of settings: where each value comes from, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from docvino.errors import ConfigError, nearest
from docvino.settings import (
    Origin,
    ParseOptions,
    RuntimeConfig,
    Settings,
    default_config_file,
    resolve,
    setting_names,
)

SECRET = "hunter2-hunter2"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "docvino.toml"
    path.write_text('device = "GPU.1"\ndpi = 200\nprecision = "int8"\n', encoding="utf-8")
    return path


def refusal(*arguments: Any, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(*arguments, **options)
    return caught.value


def origin(settings: Settings, name: str) -> tuple[object, str]:
    found = settings.origins[name]
    return found.value, found.source


def test_without_anything_given_all_values_are_defaults() -> None:
    settings = resolve()
    assert settings.runtime == RuntimeConfig()
    assert settings.options == ParseOptions()
    assert {found.source for found in settings.origins.values()} == {"default"}
    assert settings.origins.keys() == set(setting_names())


def test_a_file_is_over_the_defaults(config: Path) -> None:
    settings = resolve(config_file=config)
    assert origin(settings, "device") == ("GPU.1", f"file {config}")
    assert origin(settings, "dpi") == (200.0, f"file {config}")
    assert origin(settings, "threads") == (0, "default")


def test_the_environment_is_over_the_file(config: Path) -> None:
    settings = resolve(environ={"DOCVINO_DEVICE": "NPU"}, config_file=config)
    assert origin(settings, "device") == ("NPU", "environment DOCVINO_DEVICE")
    assert settings.runtime.precision == "int8"


def test_a_flag_is_over_the_environment_and_the_file(config: Path) -> None:
    settings = resolve({"device": "CPU", "async_slots": 3}, environ={"DOCVINO_DEVICE": "NPU"}, config_file=config)
    assert origin(settings, "device") == ("CPU", "flag --device")
    assert origin(settings, "async_slots") == (3, "flag --async-slots")


def test_a_flag_that_is_not_given_leaves_the_value_alone(config: Path) -> None:
    assert resolve({"device": None}, config_file=config).runtime.device == "GPU.1"


def test_the_words_of_the_environment_become_numbers_switches_and_paths(tmp_path: Path) -> None:
    environ = {
        "DOCVINO_DPI": "96.5",
        "DOCVINO_OFFLINE": "1",
        "DOCVINO_MODEL_CACHE": "false",
        "DOCVINO_DATA_DIR": str(tmp_path),
        "DOCVINO_MAX_PAGES": "7",
    }
    settings = resolve(environ=environ)
    assert (settings.options.dpi, settings.options.max_pages) == (96.5, 7)
    assert (settings.runtime.offline, settings.runtime.model_cache) == (True, False)
    assert settings.runtime.data_dir == tmp_path


def test_variables_of_other_programs_and_the_name_of_the_file_are_no_settings() -> None:
    assert resolve(environ={"PATH": "x", "DOCVINO_CONFIG": "x", "docvino_device": "x"}) == resolve()


def test_a_mistyped_variable_is_refused_with_the_nearest_one() -> None:
    error = refusal(environ={"DOCVINO_DEVISE": "GPU"})
    assert str(error) == "unknown environment variable DOCVINO_DEVISE"
    assert error.fix == "did you mean 'DOCVINO_DEVICE'?"


def test_a_mistyped_key_in_the_file_is_refused_with_the_nearest_one(config: Path) -> None:
    config.write_text('presicion = "int8"\n', encoding="utf-8")
    error = refusal(config_file=config)
    assert str(error) == f"unknown setting 'presicion' in {config}"
    assert error.fix == "did you mean 'precision'?"


def test_a_table_in_the_file_is_refused(config: Path) -> None:
    config.write_text("[runtime]\nthreads = 3\n", encoding="utf-8")
    assert "'runtime'" in str(refusal(config_file=config))


def test_an_unknown_flag_is_refused_with_the_nearest_one() -> None:
    error = refusal({"min_confidense": 0.3})
    assert str(error) == "unknown setting 'min_confidense'"
    assert error.fix == "did you mean 'min_confidence'?"


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    assert nearest("zzzzzz", ("device", "precision")) == "known: device, precision"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("precision", "int3"),
        ("execution", "fp32"),
        ("async_slots", 0),
        ("async_slots", 65),
        ("threads", -1),
        ("dpi", 35.9),
        ("dpi", 1201),
        ("max_pixels", 0),
        ("max_pages", 0),
        ("min_confidence", 1.01),
        ("auto_rotate", "perhaps"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_its_origin_and_its_meaning(name: str, value: object) -> None:
    error = refusal(environ={f"DOCVINO_{name.upper()}": str(value)})
    assert str(error).startswith(f"bad value {str(value)!r} for {name} (environment DOCVINO_{name.upper()}): ")
    assert error.fix.startswith(f"{name}: ")
    assert "None" not in error.fix


def test_every_setting_says_what_it_means() -> None:
    for kind in (RuntimeConfig, ParseOptions):
        assert all(field.description for field in kind.model_fields.values())


def test_no_name_is_both_a_fact_of_the_machine_and_a_wish_of_a_call() -> None:
    assert len(set(setting_names())) == len(setting_names())


@pytest.mark.parametrize("content", [b"device = ", b"\xff\xfe", None], ids=["no TOML", "no UTF-8", "no file"])
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "docvino.toml"
    if content is not None:
        path.write_bytes(content)
    assert f"cannot read settings file {path}" in str(refusal(config_file=path))


def test_settings_do_not_change_and_take_no_unknown_keys() -> None:
    for kind in (RuntimeConfig, ParseOptions):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(kind(), next(iter(kind.model_fields)), None)
        with pytest.raises(ValidationError, match="Extra inputs"):
            kind.model_validate({"colour": "red"})


def test_a_bad_password_is_not_shown_in_the_error() -> None:
    error = refusal({"password": 1234567})
    assert "1234567" not in f"{error} {error.fix}"
    assert "(hidden)" in str(error)


def test_the_password_is_not_shown_with_the_options() -> None:
    options = resolve(environ={"DOCVINO_PASSWORD": SECRET}).options
    assert options.password == SECRET
    assert SECRET not in f"{options!r} {options}"


def test_a_good_password_is_not_shown_when_another_setting_is_bad() -> None:
    error = refusal({"password": SECRET, "dpi": 1})
    assert SECRET not in f"{error} {error.fix}"


def test_the_default_file_is_in_a_folder_of_docvino() -> None:
    assert (default_config_file().name, default_config_file().parent.name) == ("docvino.toml", "docvino")


def test_an_origin_is_a_value_and_its_source() -> None:
    assert resolve({"dpi": 96}).origins["dpi"] == Origin(96.0, "flag --dpi")
