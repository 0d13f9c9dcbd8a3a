#!/usr/bin/env bash
# Makes the dumps of tests/data/aarch64 on an emulated aarch64, on any Linux with apt and uv.
#
#     tools/dump_on_aarch64.sh FOLDER [NAME ...]
#
# NAME is digits_cnn, int8 or float16, without one all of them. QEMU runs Debian's Python for aarch64
# with ONNX Runtime's package for it; nothing is installed and no root folder is changed. All of it is
# in $USERLAND, if that is set, where it is kept. It takes some 20 s and 65 MB. The exit code is 3
# where a program is not installed or a package cannot be had.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 2,9p' "$0"; exit 2; }
folder=$(realpath -m "$1"); shift
cd "$(dirname "$0")/.."
root=$PWD
lack() { echo "dump_on_aarch64: $1" >&2; exit 3; }

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) \
    || lack "qemu-aarch64 is not installed: Debian's package is qemu-user-static"
for program in apt-get dpkg-deb uv; do
    command -v $program > /dev/null || lack "$program is not installed"
done
debian=(
    libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libuuid1
    python3.11-minimal libpython3.11-minimal libpython3.11-stdlib
)
python=(numpy onnxruntime onnx msgspec flatbuffers protobuf packaging ml_dtypes typing_extensions)

userland=${USERLAND:-$(mktemp -d)}
[ -n "${USERLAND:-}" ] || trap 'rm -rf "$userland"' EXIT
if [ ! -e "$userland/python" ]; then
    mkdir -p "$userland"/{lists/partial,cache/archives/partial,packages,files/proc,tmp}
    touch "$userland/status"
    cat > "$userland/apt.conf" << END
APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Sandbox::User "root";
Dir::State::lists "$userland/lists"; Dir::State::status "$userland/status";
Dir::Cache "$userland/cache";
END
    export APT_CONFIG=$userland/apt.conf
    apt-get update -qq || lack "Debian's lists cannot be had"
    (cd "$userland/packages" && apt-get download -qq "${debian[@]}") || lack "no packages of Debian"
    for package in "$userland"/packages/*.deb; do dpkg-deb -x "$package" "$userland/files"; done
    site=$userland/files/usr/local/lib/python3.11/dist-packages
    uv pip install -q --no-deps --only-binary :all: --python-platform aarch64-manylinux_2_28 \
        --python-version 3.11 --target "$site" "${python[@]}" || lack "no packages of Python"
    # ONNX Runtime reads the features of the processor here; it ends where it reads another one's.
    for number in $(seq 0 $(($(nproc) - 1))); do
        printf 'processor\t: %s\nFeatures\t: %s\n%s\n\n' "$number" \
            "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm" \
            $'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1'
    done > "$userland/files/proc/cpuinfo"
    # lar starts its workers with `sys.executable`, which must be the emulated Python.
    echo 'import os, sys; sys.executable = os.environ.get("EMULATED_PYTHON", sys.executable)' \
        > "$site/emulated.pth"
    cat > "$userland/python" << END
#!/bin/sh
EMULATED_PYTHON='$userland/python' exec '$qemu' -cpu neoverse-n1 -L '$userland/files' \\
    '$userland/files/usr/bin/python3.11' "\$@"
END
    chmod +x "$userland/python"
fi

# The model of digits that computes in float16.
float16=tests/data/aarch64/digits_float16.onnx
[ -e $float16 ] || uv run python -c "
import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16
model = onnx.load('models/digits_cnn.onnx')
onnx.save(convert_float_to_float16(model, keep_io_types=True), '$float16')"

mkdir -p "$folder"
[ $# -ge 1 ] || set -- digits_cnn int8 float16
for name in "$@"; do
    [ "$name" = float16 ] && model=$float16 || model=models/$name.onnx
    # One thread: two wait for each other for long where both are emulated. Temporary files apart from
    # those of others: an emulated process has another starting time, so that another lar would take
    # its files for those of one that has ended. QEMU_UNAME is what the dumps say ran them.
    TMPDIR=$userland/tmp PYTHONPATH=$root QEMU_UNAME=6.1.0 "$userland/python" -m lar "$model" \
        --input inputs/digit_7.npy --cpu-default --iter 1 --warmup-iter 0 \
        --bin-io-dump "$(realpath --relative-to=. "$folder/$name")" --overwrite
done
