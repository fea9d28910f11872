#!/bin/sh
# Converts three real sample inputs, one per format, verifies them, shows the result.
set -eu
recordmill=$1
samples=$(dirname "$0")/samples
output=demo-output
rm -rf "$output"

say() { printf '\n$ recordmill %s\n' "$*"; "$recordmill" "$@"; }

say convert images "$samples/images" "$output/images" --split train=0.8 --split test=0.2
say convert cifar "$samples/cifar" "$output/digits"
say convert csv "$samples/iris/iris.csv" "$output/iris" --shards 2
for dataset in images digits iris; do
    say verify "$output/$dataset"
    say inspect "$output/$dataset" --examples 1
done
printf '\nThree datasets were written to %s/.\n' "$output"
