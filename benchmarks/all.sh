#!/bin/sh
# What docs/performance.md, docs/guard.md, docs/estimate.md, docs/diagnose.md and docs/auto.md show, as JSON. All but speed want
# FRETTA_DATA; speed wants a machine with nothing else to do.
#
#     FRETTA_DATA=../shared/data sh benchmarks/all.sh evidence/benchmarks [speed|guard|estimate|streams|serve|faults]
set -eu
out=${1:?a folder for the results}
what=${2:-all}
here=$(dirname "$0")

case $what in speed | all)
    python "$here/steps.py" --only resnet18 --out "$out/steps-resnet18.json"
    python "$here/steps.py" --only resnet18 --layout contiguous --methods tent,eta,s-fret,g-fret,sar \
        --out "$out/steps-contiguous.json"
    python "$here/steps.py" --only cifar-100 narrow --rounds 3 --out "$out/steps-small.json"
    python "$here/steps.py" --only resnet50 --rounds 3 --out "$out/steps-large.json" # vit takes long
    python "$here/head.py" --out "$out/head.json"
    python "$here/pipeline.py" --rounds 3 --out "$out/pipeline.json"
    python "$here/choices.py" --rounds 3 --out "$out/choices.json"
    python "$here/memory.py" --rounds 3 --batch-size 64 --out "$out/memory.json"
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python "$here/precision.py" --out "$out/precision.json"
    if python -c "import torch_ttt" 2>/dev/null && [ -d authors ]; then # docs/comparison.md says what they are
        python "$here/comparison.py" --authors authors --rounds 11 --out "$out/comparison.json"
    fi
    python "$here/guard.py" --cost --out "$out/guard-cost.json"
    ;;
esac
case $what in guard | all)
    python "$here/guard.py" --seeds 3 --collapsing --methods tent --out "$out/guard.json"
    python "$here/guard.py" --seeds 3 --first-seed 20 --collapsing --methods tent --out "$out/guard-fresh.json"
    python "$here/guard.py" --healthy --cifar-images 256 --out "$out/guard-healthy.json"
    env -u FRETTA_DATA python "$here/guard.py" --healthy --methods tent,eata,g-fret,auto \
        --out "$out/guard-healthy-digits.json"
    ;;
esac
case $what in estimate | all)
    python "$here/estimate.py" --raw raw --out "$out/estimate.json"
    python "$here/verdicts.py" --raw raw/verdicts --out "$out/verdicts.json"
    python "$here/verdicts.py" --methods auto,stein --only report --raw raw/verdicts-auto --out "$out/verdicts-auto.json"
    python "$here/diagnose.py" --out "$out/diagnose.json"
    python "$here/diagnose.py" --data pacs --out "$out/diagnose-pacs.json"
    ;;
esac
case $what in streams | all)
    python "$here/streams.py" --jobs "${JOBS:-2}" --records "$out/streams.jsonl"
    python "$here/costs.py" --out "$out/costs.json"
    python "$here/auto_parts.py" --out "$out/auto-parts.json"
    ;;
esac
case $what in serve | all)
    python "$here/serve.py" --kills 10 --out "$out/serve.json"
    ;;
esac
case $what in faults | all)
    python "$here/soak.py" --out "$out/soak.json" # an hour
    python "$here/faults.py" --out "$out/faults.json"
    ;;
esac
