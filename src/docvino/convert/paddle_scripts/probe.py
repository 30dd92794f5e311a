"""Runs in a new toolchain: imports what conversions need and prints the versions of all packages as JSON."""

import importlib
import importlib.metadata
import json
import sys


def main():
    for module in sys.argv[1:]:
        importlib.import_module(module)
    found = {entry.metadata["Name"].lower(): entry.version for entry in importlib.metadata.distributions()}
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    print(json.dumps(dict(sorted(found.items()))))


main()
