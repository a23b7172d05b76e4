#!/usr/bin/env bash
# Installs the real clients that tests/tests/real_clients.rs drives: mosquitto from the distribution, paho-mqtt into
# a virtual environment, MQTT.js beside it; and schemathesis, which tests/tests/admin_schema.rs sends at the API. Idempotent; says only what it does. The place is
# <target directory>/real-clients.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
place="$target/real-clients"
mkdir -p "$place"

missing=()
command -v mosquitto >/dev/null || missing+=(mosquitto)
command -v mosquitto_sub >/dev/null || missing+=(mosquitto-clients)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v prlimit >/dev/null || missing+=(util-linux)
python3 -m venv --help >/dev/null 2>&1 || missing+=(python3 python3-venv)
if ((${#missing[@]})); then
  echo "setup: apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
  # The distribution starts a broker on 1883 of all addresses; the tests start their own.
  if command -v systemctl >/dev/null; then systemctl disable --now mosquitto >/dev/null 2>&1 || true; fi
fi

if ! "$place/venv/bin/python" -c 'import paho.mqtt.client' 2>/dev/null; then
  echo "setup: paho-mqtt into $place/venv"
  rm -rf "$place/venv"
  python3 -m venv "$place/venv"
  "$place/venv/bin/pip" install --quiet --disable-pip-version-check 'paho-mqtt==2.1.0'
fi

if ! "$place/schemathesis/bin/python" -c 'import schemathesis' 2>/dev/null; then
  echo "setup: schemathesis into $place/schemathesis"
  rm -rf "$place/schemathesis"
  python3 -m venv "$place/schemathesis"
  "$place/schemathesis/bin/pip" install --quiet --disable-pip-version-check 'schemathesis==4.*'
fi

if [[ ! -d "$place/node/node_modules/mqtt" ]]; then
  echo "setup: MQTT.js into $place/node"
  mkdir -p "$place/node"
  (cd "$place/node" && npm install --silent --no-fund --no-audit --no-package-lock 'mqtt@5' >/dev/null)
fi
