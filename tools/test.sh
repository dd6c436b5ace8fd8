#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test; then the tests labelled
# asan or tsan once more under those sanitizers.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/test.sh [--quick]

Builds Delink and runs all its tests, lints included, then those that need it
under AddressSanitizer with UndefinedBehaviorSanitizer and under
ThreadSanitizer. The last line is 'N passed, N failed, N skipped' over all of
it. Exits 0 when nothing failed.

  --quick   without the sanitizers
  --help    this text
TXT
}

presets=(release asan tsan)
for argument in "$@"; do
  case $argument in
    --quick) presets=(release) ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

cd "$(dirname "$0")/.."
tools/install_deps.sh --tests
# Without them the tests of CUDA kernels on the emulated device are skipped.
tools/bootstrap.sh --cuda --headers ||
  echo "test.sh: going on without the headers of CUDA" >&2

# The library that our tokenizer.json is held against; without it a test skips.
python=${XDG_CACHE_HOME:-$HOME/.cache}/delink/python
[[ -d $python/tokenizers ]] ||
  /usr/bin/python3 -m pip install --quiet --no-deps --target "$python" \
    tokenizers==0.23.3 ||
  echo "test.sh: going on without the tokenizers library" >&2

# What Debian's Open MPI needs to start as root and with more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

jobs=$(nproc)
reports=()
for preset in "${presets[@]}"; do
  began=$SECONDS
  report=build/$preset/tests.xml
  rm -f "$report"
  reports+=("$preset=$report")
  echo "== $preset: building"
  if cmake --preset "$preset" --log-level=WARNING >/dev/null &&
    cmake --build --preset "$preset" -- --quiet; then
    built=$SECONDS
    echo "== $preset: testing (built in $((built - began)) s)"
    # The failures are in the report; the other presets still run.
    ctest --preset "$preset" --parallel "$jobs" --no-tests=ignore \
      --test-output-size-passed 10000000 --output-junit "$PWD/$report" || true
    echo "== $preset: tested in $((SECONDS - built)) s"
  fi
done
/usr/bin/python3 tools/count_tests.py "${reports[@]}"
