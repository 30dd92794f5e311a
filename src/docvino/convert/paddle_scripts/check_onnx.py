"""Runs in any toolchain: checks an ONNX file in full, shapes and types included."""

import sys

import onnx


def main():
    try:
        onnx.checker.check_model(sys.argv[1], full_check=True)
    except Exception as error:  # noqa: BLE001  (whatever it is, the file is not valid)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        sys.exit(f"Error: {' '.join(lines)[:600]}")


main()
