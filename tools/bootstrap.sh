#!/usr/bin/env bash
# Brings what a build with CUDA needs and this machine lacks, from the wheels
# that NVIDIA has on PyPI (tools/cuda_requirements.txt: versions and hashes).
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/bootstrap.sh --cuda [--headers] [--all] [--prefix DIR]

Installs a CUDA 13 toolkit from NVIDIA's wheels on PyPI, outside the source
tree: compiler, runtime, cuBLASLt, cuDNN with its C++ front end, and NCCL; about
1 GB to download and 1.5 GB on disk. Installs only what neither DIR nor an
installed toolkit has (the one of CUDAToolkit_ROOT, CUDA_PATH or the nvcc in
PATH), so it may be called again. CMake finds the default folder; for another
one, set CUDAToolkit_ROOT to DIR. Needs python3-pip.

  --headers      only the headers that the tests' emulated device needs (26 MB),
                 and the front end if cuDNN is installed
  --all          install everything, as if there were no installed toolkit
  --prefix DIR   target (default: ${XDG_CACHE_HOME:-~/.cache}/delink/cuda-13)
  --help         this text
TXT
}

cuda=
headers=
all=
prefix=${XDG_CACHE_HOME:-$HOME/.cache}/delink/cuda-13
while (($#)); do
  case $1 in
    --cuda) cuda=1 ;;
    --headers) headers=1 ;;
    --all) all=1 ;;
    --prefix)
      (($# > 1)) || { echo "bootstrap.sh: $1 needs a value" >&2; exit 2; }
      prefix=$(realpath -m -- "$2")
      shift
      ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[[ -n $cuda ]] || { usage >&2; exit 2; }
requirements=$(dirname "$(realpath "$0")")/cuda_requirements.txt
stamps=$prefix/.wheels

# The roots of toolkits that CMake would find, best first.
installed_roots() {
  local nvcc root
  [[ -z $all ]] || return 0
  for nvcc in "${CUDAToolkit_ROOT:+$CUDAToolkit_ROOT/bin/nvcc}" \
    "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" "$(command -v nvcc || true)"; do
    [[ -x $nvcc && $("$nvcc" --version) =~ release\ 13\. ]] || continue
    # nvcc knows its own folder, even if called through a link or a script.
    root=$("$nvcc" -v no_such_file 2>&1 | sed -n 's/^#\$ TOP=//p' || true)
    [[ ! -d $root ]] || realpath "$root"
  done
}

# Whether some installed toolkit has all these files.
installed() {
  local root file
  while read -r root; do
    for file in "$@"; do
      [[ -e $root/$file ]] || continue 2
    done
    return 0
  done < <(installed_roots)
  return 1
}

# The wanted wheels, with those from earlier calls.
wanted() {
  local compiler=(bin/nvcc nvvm/bin/cicc include/crt/host_config.h
    include/cuda_runtime.h include/cccl/nv/target)
  if [[ -n $headers ]]; then
    installed "${compiler[@]:2}" ||
      printf '%s\n' nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl
    # With an installed cuDNN, its attention needs only this to be built.
    installed include/cudnn_frontend.h || ! installed include/cudnn.h ||
      echo nvidia-cudnn-frontend
    installed include/nvtx3/nvToolsExt.h || echo nvidia-nvtx
    return
  fi
  installed "${compiler[@]}" || printf '%s\n' nvidia-cuda-nvcc \
    nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl
  installed include/cublasLt.h || echo nvidia-cublas
  installed include/cudnn.h || echo nvidia-cudnn-cu13
  installed include/nvrtc.h || echo nvidia-cuda-nvrtc
  installed include/nccl.h || echo nvidia-nccl-cu13
  installed include/cudnn_frontend.h || echo nvidia-cudnn-frontend
  installed include/nvtx3/nvToolsExt.h || echo nvidia-nvtx
}

# NAME==VERSION; nothing for a wheel that is not pinned.
pinned() { grep -m 1 -o "^$1==[^ ]*" "$requirements" || true; }

# If an earlier call brought another version of a wheel, everything there is
# deleted and brought again.
earlier=()
if [[ -d $stamps ]]; then
  mapfile -t there < <(ls "$stamps")
  for name in "${there[@]}"; do
    [[ $(pinned "${name%%==*}") != "$name" ]] || continue
    echo "bootstrap.sh: $prefix has $name, another version;" \
      "installing everything again"
    earlier=("${there[@]%%==*}")
    rm -rf "$prefix"
    break
  done
fi

lacking=()
while read -r name; do
  pin=$(pinned "$name")
  [[ -z $pin || -e $stamps/$pin ]] || lacking+=("$name")
done < <({ wanted; printf '%s\n' "${earlier[@]}"; } | sort -u)
if ((${#lacking[@]} == 0)); then
  exit 0
fi

if [[ $(uname -sm) != "Linux x86_64" ]]; then
  echo "bootstrap.sh: wheels are pinned for Linux on x86-64 only; install a" \
    "CUDA 13 toolkit and set CUDAToolkit_ROOT to it" >&2
  exit 1
fi
python=/usr/bin/python3
if ! "$python" -m pip --version >/dev/null 2>&1; then
  echo "bootstrap.sh: pip is missing; install python3-pip" \
    "(tools/install_deps.sh --tests installs it)" >&2
  exit 1
fi

echo "bootstrap.sh: installing ${lacking[*]} in $prefix"
mkdir -p "$stamps"
fresh=$(mktemp -d "$prefix/.fresh-XXXXXX")
trap 'rm -rf "$fresh"' EXIT
for name in "${lacking[@]}"; do
  # The line of the version and that of the hash.
  grep -A 1 "^$name==" "$requirements"
done >"$fresh/requirements.txt"
export PIP_ROOT_USER_ACTION=ignore
platforms=()
for glibc in 2014 _2_17 _2_18 _2_27 _2_28; do
  platforms+=(--platform "manylinux${glibc}_x86_64")
done
"$python" -m pip install --quiet --require-hashes --no-deps --no-compile \
  --no-cache-dir --disable-pip-version-check --only-binary=:all: \
  --platform manylinux2010_x86_64 --platform manylinux_2_12_x86_64 \
  "${platforms[@]}" --python-version 3.11 --implementation cp \
  --target "$fresh/site" --requirement "$fresh/requirements.txt"

# Each wheel has its part of the toolkit in its own folder.
for part in "$fresh"/site/nvidia/{cu13,cudnn,nccl} "$fresh/site"; do
  for folder in bin include lib nvvm; do
    [[ -d $part/$folder ]] || continue
    mkdir -p "$prefix/$folder"
    cp -rlf "$part/$folder/." "$prefix/$folder/"
  done
done
if [[ -d $prefix/lib ]]; then
  ln -sfn lib "$prefix/lib64"
  for library in "$prefix"/lib/lib*.so.*; do
    [[ ! -e $library ]] ||
      ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
fi
for name in "${lacking[@]}"; do
  touch "$stamps/$(pinned "$name")"
done
echo "bootstrap.sh: done"
