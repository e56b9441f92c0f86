#!/usr/bin/env python3
"""Checks the examples of runtime/serve/deploy/: the YAML against Kubernetes' schemas, the units with systemd-analyze.

needs: pip install kubernetes-validate; systemd for the units. The exit status is the verdict."""
import pathlib
import shutil
import subprocess
import sys

import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).parents[2] / "runtime/serve/deploy"


def check_yaml(path):
    for document in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        print("valid:", path.name, document["kind"])


def main():
    for path in sorted(FOLDER.glob("*.yaml")):
        check_yaml(path)
    if not shutil.which("systemd-analyze"):
        print("not checked: the units, because systemd-analyze was not found")
        return 0
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", *map(str, sorted(FOLDER.glob("quire.*")))],
                          capture_output=True, text=True).stderr.splitlines()
    said = [line for line in said if "quire" in line and "is not executable: No such file" not in line]
    print("\n".join(said) or "valid: quire.service, quire.socket")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
