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
cargo test --workspace --locked --doc
