#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test, each in the builds that
# its labels ask for (docs/testing.md).
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/test.sh [--quick | --full] [--within MINUTES]

Builds Delink and runs all its tests, lints included: in release those that are
not labelled `once`, then those that need it under AddressSanitizer with
UndefinedBehaviorSanitizer and under ThreadSanitizer. The last line is 'N passed,
N failed, N skipped' over all of it; above it stand the slowest tests and the
minutes that the parts took. Exits 0 when nothing failed.

  --quick   all tests in release, none under sanitizers
  --full    all tests in release and again under AddressSanitizer; kernels for
            all GPUs; clang-tidy reads what it has read before
  --within MINUTES
            leaves out builds under sanitizers that would not be through by then,
            by what the release build and its tests took, and says so; what only
            the left out one would have run is then run in release
  --help    this text
TXT
}

mode=checks
builds=(release tsan asan once)
budget=(--budget 38)
within=
while (($#)); do
  case $1 in
    --quick) mode=quick builds=(release) budget=() ;;
    --full) mode=full builds=(release tsan asan) budget=() ;;
    --within)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
      within=$2
      shift
      ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
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

if [[ $mode == full ]]; then
  rm -rf "${XDG_CACHE_HOME:-$HOME/.cache}/delink/tidy"
fi

# What Debian's Open MPI needs to start as root and with more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

jobs=$(env -u OMP_NUM_THREADS nproc)
# Of what release takes, built and tested, each of the others takes such a part,
# in percent: a tsan of 3.8 and an asan of 9.3 of 17.5 minutes, and some more;
# without an asan, the tests in release that it would have run alone.
declare -A part=([release]=0 [tsan]=25 [asan]=60 [once]=25)
release=0
left_out=()
reports=()
took=(--took "install=$SECONDS")
for build in "${builds[@]}"; do
  if [[ $build == once && " ${left_out[*]} " != *" asan "* ]]; then continue; fi
  began=$SECONDS
  needs=$((release * part[$build] / 100))
  if [[ -n $within ]] && ((began + needs > 60 * within)); then
    left_out+=("$build")
    continue
  fi
  preset=$build
  if [[ $build == once ]]; then preset=release; fi
  target=all tests=$preset
  options=() selection=()
  case $mode-$build in
    checks-release)
      target=tests_release
      selection=(--label-exclude '^once$')
      ;;
    checks-once) selection=(--label-regex '^once$') ;;
    full-release) options=(-DDELINK_CUDA_ARCHITECTURES=ALL) ;;
    full-asan) tests=asan-all ;;
    *-asan | *-tsan) target=tests_$preset ;;
  esac
  report=build/$preset/tests.xml
  if [[ $build == once ]]; then report=build/$preset/tests-once.xml; fi
  rm -f "$report"
  reports+=("$build=$report")
  echo "== $build: building"
  if cmake --preset "$preset" --log-level=WARNING "${options[@]}" >/dev/null &&
    cmake --build --preset "$preset" --target "$target" -- --quiet; then
    built=$SECONDS
    echo "== $build: testing (built in $((built - began)) s)"
    # The failures are in the report; the other presets still run.
    ctest --preset "$tests" "${selection[@]}" --parallel "$jobs" \
      --no-tests=ignore --test-output-size-passed 10000000 \
      --output-junit "$PWD/$report" || true
    echo "== $build: tested in $((SECONDS - built)) s"
    took+=(--took "$build built=$((built - began))"
      --took "tested=$((SECONDS - built))")
  fi
  if [[ $build == release ]]; then release=$((SECONDS - began)); fi
done
for build in "${left_out[@]}"; do
  echo "test.sh: $build was left out: it would not have been through" \
    "within $within minutes; run tools/test.sh without --within"
done
/usr/bin/python3 tools/count_tests.py "${budget[@]}" "${took[@]}" \
  "${reports[@]}"
