#!/bin/sh
# Unpacks PyTorch of Debian 12 and the libraries it needs; installs nothing, needs no root.
#
#     sh tests/integration/unpack_torch.sh FOLDER
#
# The wheels of PyTorch for Linux are for CUDA: 0.9 GB, and they do not load without
# another 2 GB of libraries. Debian's is for processors alone: 0.5 GB with all it needs.
set -eu
folder=$1
mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/packages"
# As if nothing was installed, so that every machine unpacks the same.
: > "$folder/state/status"
apt() {
    apt-get -o Dir::State="$folder/state" -o Dir::State::status="$folder/state/status" \
        -o Dir::Cache="$folder/cache" -o Debug::NoLocking=true -o APT::Sandbox::User=root \
        -o APT::Install-Recommends=false -o Acquire::Languages=none --quiet=2 --yes "$@"
}
apt update
# The C library is that of the machine. What only draws on screens is never loaded.
left_out='^(libc6|libgcc-s1|libstdc\+\+6|libllvm.*|libz3-4|.*-mesa-.*|.*-data|.*-common'
left_out="$left_out|fonts-.*|iso-codes|gcc-.*|debconf|adduser|passwd|lsb-base|sysvinit-.*)\$"
names=$(apt install --simulate libtorch1.13 | awk '/^Inst/ { print $2 }' | grep -Ev "$left_out")
cd "$folder/packages"
# shellcheck disable=SC2086
apt download $names python3-torch
for package in *.deb; do
    dpkg-deb --fsys-tarfile "$package" |
        tar -x -C "$folder" --wildcards --no-wildcards-match-slash './usr/lib/*' './lib/*' \
            2> /dev/null || true
done
cd "$folder"
rm -rf packages state cache
