#!/bin/sh
# All benchmarks of one GPU, in under 8 minutes, from a machine with CUDA and torch: benchmarks/gpu.sh [--out FILE] [--dry-run]
# Where there is no network, put wheels of what is missing into a folder and set WHEELS=<folder>.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
if [ -n "${WHEELS:-}" ]; then
  site=$(mktemp -d)
  "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
  export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
fi
"$PYTHON" - <<'CHECK'
import importlib.util
import sys

needed = {"torch": "torch", "torchvision": "torchvision", "timm": "timm", "zarr": "zarr", "pydantic": "pydantic",
          "braceexpand": "braceexpand", "upath": "universal_pathlib", "sklearn": "scikit-learn", "PIL": "pillow",
          "safetensors": "safetensors", "scipy": "scipy"}
missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
if missing:
    sys.exit(f"missing here: {' '.join(missing)}. pip install them, or see WHEELS at the top of benchmarks/gpu.sh.")
CHECK
exec "$PYTHON" -m benchmarks.gpu "$@"
