#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests (docs/testing.md).
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/test.sh [--full]

Builds the release preset and runs all tests and lints. clang-tidy checks
changed files, for some minutes at most. The last line is 'N passed, N failed, N
skipped'; above it are the skipped and the slowest tests, and the minutes that
each part took. Exits with 0 if nothing failed.

  --full    also run the tests that need it under AddressSanitizer with
            UndefinedBehaviorSanitizer and under ThreadSanitizer; use more rows
            in tests with random rows; run clang-tidy on all files; build
            kernels for all GPUs
  --help    this text
TXT
}

full=
while (($#)); do
  case $1 in
    --full) full=1 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

say() { echo "test.sh: $*" >&2; }

cd "$(dirname "$0")/.."
tools/install_deps.sh --tests
if ! command -v ccache >/dev/null; then
  say "ccache is missing: files compiled before are compiled again"
else
  folder=$(ccache --get-config cache_dir)
  if ! { mkdir -p "$folder" &&
    head -c 16M /dev/zero >"$folder/probe.$$"; } 2>/dev/null; then
    say "ccache's folder $folder is full or cannot be written:" \
      "files compiled before are compiled again"
    export CCACHE_DISABLE=1
  fi
  rm -f "$folder/probe.$$"
fi
# Without them the tests of CUDA kernels on the emulated device are skipped.
tools/bootstrap.sh --cuda --headers ||
  say "no CUDA headers: tests of CUDA kernels will be skipped"

# The library that our tokenizer.json is compared with; without it a test skips.
python=${XDG_CACHE_HOME:-$HOME/.cache}/delink/python
[[ -d $python/tokenizers ]] ||
  /usr/bin/python3 -m pip install --quiet --no-deps --target "$python" \
    tokenizers==0.23.3 ||
  say "no tokenizers library: its comparison test will be skipped"

# Debian's Open MPI needs these as root and with more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

builds=(release)
budget=(--budget 32)
options=()
if [[ -n $full ]]; then
  # Read by the tests that draw rows and by clang-tidy's lint.
  export DELINK_FULL_TESTS=1
  builds=(release tsan asan)
  budget=()
  options=(-DDELINK_CUDA_ARCHITECTURES=ALL)
fi

jobs=$(env -u OMP_NUM_THREADS nproc)
# Wall seconds and CPU seconds of all cores since the last call.
mark_wall=0
mark_cpu=0
took=()
times_file=$(mktemp)
trap 'rm -f "$times_file"' EXIT
took() {
  local user sys cpu
  # The second line, such as 1m2.345s, is of all ended processes.
  times >"$times_file"
  { read -r && read -r user sys; } <"$times_file"
  user=${user%.*} sys=${sys%.*}
  cpu=$((60 * (${user%m*} + ${sys%m*}) + 10#${user#*m} + 10#${sys#*m}))
  took+=(--took "$1=$((SECONDS - mark_wall)),$((cpu - mark_cpu))")
  mark_wall=$SECONDS
  mark_cpu=$cpu
}

took installed
reports=()
for build in "${builds[@]}"; do
  target=all
  if [[ $build != release ]]; then target=tests_$build; fi
  report=build/$build/tests.xml
  rm -f "$report"
  reports+=("$build=$report")
  echo "== $build: building"
  if cmake --preset "$build" --log-level=WARNING "${options[@]}" >/dev/null &&
    cmake --build --preset "$build" --target "$target" -- --quiet; then
    took "$build built"
    echo "== $build: testing"
    # The failures are in the report; the other presets still run.
    ctest --preset "$build" --parallel "$jobs" --no-tests=ignore \
      --test-output-size-passed 10000000 --output-junit "$PWD/$report" || true
    took "$build tested"
  fi
  options=()
done
/usr/bin/python3 tools/count_tests.py "${budget[@]}" "${took[@]}" \
  "${reports[@]}"
