#!/bin/sh
# The record on one GPU: time and memory of every model in both precisions, growth, and largest batches.
#   sh benchmarks/h200.sh FOLDER [PART ...]
# Parts are the models' names, growth and largest; all of them unless told. Each is a command and a file of its own, so
# that it can be repeated, and a fault ends that part alone. PRECISION and ENGINES choose among those of a part. Draw the page with: tacit bench page FOLDER/*.json
set -u
OUT=${1:-benchmarks/results}
[ $# -gt 0 ] && shift
PYTHON=${PYTHON:-python}
PRECISION=${PRECISION:-tf32,bfloat16}
ENGINES=${ENGINES:-}
PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
mkdir -p "$OUT"

bench() {
    name=$1
    shift
    "$PYTHON" -m tacit.benchmarking.step --device cuda --out "$OUT/$name.json" "$@" || echo "$name: failed" >&2
}

for part in ${*:-mlp cnn wrn gpt gpt-2048 vit lora lstm logistic growth largest}; do
    case $part in
    growth) # nine sizes of a GPT would take ten minutes to compile, and grow alike without
        bench growth-mlp --models mlp --precision tf32 --engines plain,plain-compiled,tacit --rounds 3 --growth
        bench growth-gpt --models gpt --precision tf32 --engines plain,tacit-eager --rounds 3 --growth
        ;;
    largest)
        bench largest --models mlp,gpt --precision tf32 --engines plain,plain-parts-graph,tacit-eager,tacit --rounds 3 \
            --memory-limit 16384
        ;;
    *) bench "$part" --models "$part" --precision "$PRECISION" ${ENGINES:+--engines "$ENGINES"} ;;
    esac
done
