#!/usr/bin/env bash
# Runs the comparison: benches/compare/run.sh --loadgen DIR [--passes N] [--set SCENARIOS] [--only BROKERS].
# DIR is the load generator's package, with its bench.py; see README.md beside this file. Loopback only.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."

loadgen="" passes=3 only=()
sets="p2p.q0,p2p.q1,p2p.q2,p2p.q1.1k,fanin.q0,fanin.q1,fanout100.q0,fanout1000.q0,shared.q1,open.p2p.q1"
while (($#)); do
  case "$1" in
    --loadgen) loadgen="$2" ;;
    --passes) passes="$2" ;;
    --set) sets="$2" ;;
    --only) only=(--only "$2") ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
if [[ -z "$loadgen" || ! -f "$loadgen/bench.py" ]]; then
  echo "run.sh: --loadgen must name the directory of the load generator, with bench.py" >&2
  exit 2
fi

target="${CARGO_TARGET_DIR:-$PWD/target}"
out="$target/compare"
mkdir -p "$out"
(cd "$loadgen" && CARGO_TARGET_DIR="$out/loadgen" cargo build --quiet --release)
if [[ -z "${MAST_BIN:-}" ]]; then
  cargo build --release --locked -p mast
  export MAST_BIN="$target/release/mast"
fi
export LOADGEN_BIN="$out/loadgen/release" MQLOAD="$out/loadgen/release/mqload"
export PATH="$target/peers/bin:$target/peers/venv/bin:$PATH"
rm -f "$out/runs.jsonl"
# A scenario at a time, so that all brokers of one run in the same minutes.
for ((pass = 0; pass < passes; pass++)); do
  for scenario in ${sets//,/ }; do
    python3 "$loadgen/bench.py" run --brokers "$here/brokers.py" --out "$out/runs.jsonl" --set "$scenario" \
      --passes 1 --seed "$pass" "${only[@]}"
  done
done
python3 "$loadgen/bench.py" table "$out/runs.jsonl" --md "$out/table.md"
echo "runs: $out/runs.jsonl, table: $out/table.md"
