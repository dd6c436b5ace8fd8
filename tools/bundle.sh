#!/usr/bin/env bash
# Puts the programs of a build together with what they need of this system, so
# that they run from any folder of another Linux machine (tools/bundle/README).
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/bundle.sh [--build DIR] [--out FILE.tar.xz | --out DIR]

Makes a relocatable copy of a build: the delink program, the tests that need a
GPU, every shared library they use but libc and CUDA's, Open MPI's runtime files
and the recipes. The copy runs on any x86-64 Linux whose libc is at least as new
as this one; to use a GPU it needs a driver, cuBLASLt and cuDNN there. This
script needs patchelf and xz.

  --build DIR   folder of the build (default: build/release)
  --out PATH    an archive or a new folder (default: build/delink-bundle.tar.xz)
  --help        this text
TXT
}

root=$(dirname "$(realpath "$0")")/..
build=$root/build/release
out=$root/build/delink-bundle.tar.xz
while (($#)); do
  case $1 in
    --build | --out)
      (($# > 1)) || { echo "bundle.sh: $1 needs a value" >&2; exit 2; }
      path=$(realpath -m -- "$2")
      if [[ $1 == --out ]]; then out=$path; else build=$path; fi
      shift 2
      ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

fail() { echo "bundle.sh: $*" >&2; exit 1; }
[[ -x $build/tools/delink ]] ||
  fail "no delink in $build; build it first, or give a build by --build"
for tool in patchelf xz; do
  command -v $tool >/dev/null ||
    fail "$tool is missing; tools/install_deps.sh --tests installs it"
done
if [[ -s $build/tests/cuda_build/gpu_tests.txt ]] &&
  grep -q '^DELINK_CUDA_ARCHITECTURES:.*=AUTO$' "$build/CMakeCache.txt"; then
  echo "bundle.sh: the build has kernels only for this machine's GPUs; for" \
    "all GPUs build with -DDELINK_CUDA_ARCHITECTURES=ALL" >&2
fi
[[ $out == *.tar.xz || ! -e $out ]] ||
  fail "$out exists; remove it, or choose another --out"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/delink
mkdir -p "$bundle"/{bin,lib,libexec,recipes}

# The libraries that a program or library loads, except those of every Linux
# (libc's) and those that the GPU's machine has (CUDA's).
libc='c|m|dl|rt|pthread|resolv|util|anl|mvec'
gpu='cuda|cudart|cublas|cublasLt|cudnn[^.]*|nccl|nvrtc|nvJitLink'
libraries_of() {
  ldd "$@" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -v -E "/(ld-linux[^/]*|lib($libc|$gpu))\.so"
}

# Copies a program or library to a folder of the bundle; it finds its libraries
# in lib, before those that the environment names.
take() {  # FILE FOLDER
  local copy
  copy=$bundle/$2/$(basename "$1")
  cp -L "$1" "$copy"
  chmod u+w "$copy"
  strip --strip-unneeded "$copy"
  patchelf --force-rpath --set-rpath \
    "\$ORIGIN/$(realpath --relative-to="$bundle/$2" "$bundle/lib")" "$copy"
  originals+=("$1")
}

originals=()
programs=("$build/tools/delink")
if [[ -e $build/tests/cuda_build/gpu_tests.txt ]]; then
  while read -r program; do
    [[ ! -x $program ]] || programs+=("$program")
  done <"$build/tests/cuda_build/gpu_tests.txt"
fi
for program in "${programs[@]}"; do
  take "$program" libexec
done

# Open MPI: its programs, its texts, and its components except those for
# networks that need the host's drivers (UCX, libfabric, InfiniBand, PSM).
directory_of_mpi() {
  ompi_info --parsable --path "$1" | sed 's/^[^:]*:[^:]*://'
}
if ldd "$build/tools/delink" | grep -q libmpi; then
  command -v ompi_info >/dev/null || fail "ompi_info is missing (openmpi-bin)"
  for program in orterun orted; do
    take "$(directory_of_mpi bindir)/$program" libexec
  done
  mv "$bundle/libexec/orterun" "$bundle/libexec/mpirun"
  mkdir -p "$bundle"/lib/{openmpi,pmix} "$bundle"/share "$bundle/etc"
  for component in "$(directory_of_mpi pkglibdir)"/mca_*.so; do
    [[ $component =~ _(ucx|ofi|openib|psm2?|flux|cuda)\.so ]] ||
      take "$component" lib/openmpi
  done
  cp -rL "$(directory_of_mpi pkgdatadir)" "$bundle/share/openmpi"
  cp -rL "$(directory_of_mpi sysconfdir)" "$bundle/etc/openmpi"
  pmix=$(libraries_of "$bundle"/lib/openmpi/mca_pmix_ext*.so | grep libpmix)
  pmix=$(dirname "$(realpath "$pmix")")
  for component in "$pmix"/pmix/*.so; do
    take "$component" lib/pmix
  done
  cp -rL "$pmix/../share/pmix" "$bundle/share/pmix"
fi

while read -r library; do
  take "$library" lib
done < <(libraries_of "${originals[@]}")

cp "$root"/recipes/*.toml "$bundle/recipes/"
cp -r "$root/machines" "$bundle/"
cp -r "$root/docs/licenses" "$bundle/"
cp "$root/LICENSE" "$bundle/"
cp "$root/tools/bundle/README" "$bundle/"
cp "$root"/tools/bundle/{gpu_check,moe_check,offload_check}.py "$bundle/"
cp -r "$root/tools/bench" "$bundle/bench"
cp "$root/tools/bundle/run" "$bundle/libexec/run"
for program in "$bundle"/libexec/*; do
  name=$(basename "$program")
  [[ $name == run ]] || ln -s ../libexec/run "$bundle/bin/$name"
done

mkdir -p "$(dirname "$out")"
if [[ $out == *.tar.xz ]]; then
  # A level above 1 takes several times as long for a tenth less.
  tar -C "$work" -I "xz -1 -T0" -cf "$out" delink
else
  cp -a "$bundle" "$out"
fi
echo "$out: $(du -sh "$out" | cut -f 1), ${#programs[@]} programs"
