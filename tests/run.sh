#!/usr/bin/env bash
# Passes all tests, on a fresh Linux machine with Rust: fetches the real clients first (as root: apt, pip, npm).
# Sets no RUSTFLAGS: .cargo/config.toml has a cfg that would be lost.
set -euo pipefail
cd "$(dirname "$0")/.."

export INSTA_UPDATE="${INSTA_UPDATE:-no}"
target="${CARGO_TARGET_DIR:-$PWD/target}"

bash tests/setup.sh
cargo build --profile ci --locked -p mast
export MAST_BIN="$target/ci/mast"
# Some tests hold over a thousand sockets on either side.
ulimit -n "$(ulimit -Hn)" || true
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --workspace --locked --no-fail-fast
else
  cargo test --workspace --locked --no-fail-fast --lib --bins --tests
fi
# The black-box tests once more, each as two tenants of one broker at the same time (tests/src/twin.rs).
suites=(bug_cases_access bug_cases_delivery bug_cases_protocol bug_cases_transport conformance_connect
  conformance_limits conformance_malformed conformance_publish conformance_session conformance_subscribe
  conformance_ws hardening_doors hardening_traffic real_clients transcripts)
export MAST_TWO_TENANTS=1
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run -p mast-tests --locked --no-fail-fast "${suites[@]/#/--test=}"
else
  # One process for each test: both halves of a test are found by its name.
  for suite in "${suites[@]}"; do
    cargo test -p mast-tests --locked --test "$suite" -- --list --format terse | sed -n 's/: test$//p' |
      while read -r name; do
        cargo test -p mast-tests --locked --test "$suite" -- --exact "$name" </dev/null
      done
  done
fi
unset MAST_TWO_TENANTS
cargo test --workspace --locked --doc
