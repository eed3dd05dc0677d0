#!/bin/sh
# The record on one GPU: time, memory, growth and largest batches of every model, in both precisions.
#   sh benchmarks/h200.sh [FOLDER]
# Each part is a command of its own, so that a part can be repeated and a fault ends that part alone.
set -u
OUT=${1:-benchmarks/results}
PYTHON=${PYTHON:-python}
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}src"
mkdir -p "$OUT"

bench() {
    name=$1
    shift
    $PYTHON -m tacit.benchmarking.step --device cuda --out "$OUT/$name.json" "$@" || echo "$name: failed" >&2
}

bench step --models mlp,cnn,wrn,gpt --precision tf32,bfloat16
bench step-more --models gpt-2048,vit,lora,lstm,logistic --precision tf32,bfloat16
bench growth --models mlp,gpt --precision tf32 --engines plain,plain-compiled,tacit --rounds 3 --growth
bench largest --models mlp,cnn,wrn,gpt --precision tf32 --engines plain,plain-compiled,tacit --rounds 3 --memory-limit 16384
