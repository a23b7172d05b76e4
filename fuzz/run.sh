#!/bin/sh
# Runs one fuzz target: fuzz/run.sh TARGET [SECONDS]. New inputs go to target/fuzz/TARGET, so that the committed
# corpus stays small. cargo-fuzz replaces RUSTFLAGS, hence the cfg; without LTO a build takes seconds. The code is
# free of unsafe, so no sanitizer is needed.
set -eu
cd "$(dirname "$0")/.."
target=$1
seconds=${2:-60}
export RUSTC_BOOTSTRAP=1 RUSTFLAGS='--cfg tokio_unstable'
export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=8
found=${CARGO_TARGET_DIR:-target}/fuzz/$target
mkdir -p "$found"
exec cargo fuzz run --sanitizer none "$target" "$found" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=1024
