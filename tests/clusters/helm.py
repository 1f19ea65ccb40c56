"""Run Helm's library in a separate process, in a node's network: `python -m tests.clusters.helm ACTION`.

ACTION is install, upgrade or uninstall. Its arguments are one JSON object on stdin.
"""

import json
import sys

import helm_python

if __name__ == "__main__":
    told = json.load(sys.stdin)
    config = helm_python.Config(kubeconfig_path=told.pop("kubeconfig"), namespace=told.pop("namespace"))
    try:
        getattr(config, sys.argv[1])(**told)
    except helm_python.HelmError as error:
        raise SystemExit(str(error)) from None
