#!/bin/sh
# Everything behind docs/evidence.md, in order. What is there is skipped, so it can be stopped and started again.
# Wants FRETTA_DATA: PACS, cifar-10-batches-py, imagenet-sample, weights. About nine hours of one core, and five more for each
# seed of the ResNet-18.
#
#     FRETTA_DATA=../shared/data JOBS=2 sh evidence/run.sh
set -eu
HOW="--jobs ${JOBS:-2} --threads 1"
cd "$(dirname "$0")/.."

# Learning rates, under the same rules for all.
RATES=lr=1e-5,1e-4,5e-4,1e-3,5e-3,1e-2
FEW=lr=1e-5,1e-4,1e-3,5e-3
for method in g-fret s-fret tent eta tsd eata sar tipi; do
    T="fretta tune --method $method --seed 0 --store evidence/tuning $HOW"
    $T cifar10c-shared --rule extra-corruptions --grid $RATES --limit 512
    $T cifar10c-shared --rule first-domain --grid $RATES --limit 1024
    $T cifar10c-shared --rule label-free --grid $RATES --limit 256
    $T cifar10c-shared --rule oracle --grid $RATES --limit 256
    $T digits-all --rule extra-corruptions --grid $FEW
    $T digits-all --rule first-domain --grid $FEW
    $T digits-all --rule label-free --grid $FEW --limit 256
    $T digits-all --rule oracle --grid $FEW --limit 256
    $T pacs-shared --rule first-domain --grid $FEW --limit 512
done
G="fretta tune cifar10c-shared --method g-fret --seed 0 --store evidence/tuning --product $HOW"
for rule in "extra-corruptions --limit 512" "oracle --limit 256"; do
    $G --rule $rule --grid lr=1e-4,1e-3 --grid lam=1e-3,1e-2,1e-1,1
done
$G --rule oracle --limit 256 --grid lr=1e-4,1e-3 --grid k1=1,10,100,300 --grid k2=0.5,0.8,0.95,1
D="fretta tune digits-all --method g-fret --seed 0 --store evidence/tuning --product $HOW"
$D --rule oracle --limit 256 --grid lr=1e-4,1e-3 --grid lam=1e-3,1e-2,1e-1,1
$D --rule extra-corruptions --grid lr=1e-4,1e-3 --grid lam=1e-3,1e-2,1e-1,1
$D --rule oracle --limit 256 --grid lr=1e-3 --grid k1=1,10,100,300 --grid k2=0.5,0.8,0.95,1

# The results.
for suite in digits-all digits-layernorm cifar10c-shared cifar10c-shared-full cifar10c-shared-lt cifar10c-shared-tea cifar10c-shared-correlated \
    cifar10c-shared-guarded pacs-shared imagenet-shared gfret-parts gfret-switches; do
    fretta run $suite --store evidence $HOW
done

# 512 features: rates with the labels that are reported, as in the paper; then seed by seed.
SUITE=cifar10c-resnet18
G="fretta tune $SUITE --method g-fret --rule oracle --limit 128 --seed 0 --store evidence/tuning --product $HOW"
$G --grid $FEW --grid lam=1e-3,1e-2,1e-1,1
$G --grid lr=1e-3 --grid k1=1,100,300 --grid k2=0.5,0.95,1
fretta run rates-resnet18 --store evidence $HOW
for seed in 0 1 2; do
    for suite in $SUITE gfret-parts-resnet18; do
        fretta run $suite --seed $seed --store evidence $HOW
    done
done

# Redundancy.
M="--method source --method bn --method tent --method s-fret --method g-fret"
C="--data cifar10 --model cifar:resnet20 --weights cifar10_resnet20.safetensors --num-classes 10
   --size 32 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225"
R="--data cifar10 --model weights/cifar10-resnet18.safetensors"
fretta analyze redundancy $C $M --limit 256 --corruption all --store evidence --name redundancy-cifar10
fretta analyze redundancy $M --limit 256 --corruption all --store evidence --name redundancy-digits
fretta analyze redundancy $R $M --limit 128 --corruption all --store evidence --name redundancy-resnet18
fretta analyze mechanism $R $M --limit 256 --corruption all --store evidence --name mechanism-resnet18

# How well classes separate.
M="--method source --method bn --method s-fret --method g-fret --limit 256 --domain gaussian_noise"
fretta analyze tsne $M --store evidence --name tsne-digits
fretta analyze tsne $C $M --corruption all --severity 5 --store evidence --name tsne-cifar10
fretta analyze tsne $R $M --corruption all --severity 5 --store evidence --name tsne-resnet18

# The estimate without labels, on models and images that it was not set on.
for domain in cartoon photo; do
    fretta compare --model weights/pacs-$domain-lite0.safetensors --data "$FRETTA_DATA/PACS/$domain" \
        --methods source,bn --limit 1024 --out evidence/compare/$domain
done

# Speed (wants the machine for itself), the guard's laboratory, the estimate run by run.
sh benchmarks/all.sh evidence/benchmarks

python -m evidence.build --pack
fretta report evidence --out report
fretta report evidence --suite $SUITE --out report/resnet18
for figure in nrs cost; do
    cp report/figures/$figure-cifar10c-shared-resnet20-*.png docs/figures/$figure-cifar10c.png
    cp report/resnet18/figures/$figure-$SUITE-resnet18-*.png docs/figures/$figure-resnet18.png
done
cp report/figures/severity-methods-cifar10.png report/figures/severity-methods-resnet18.png docs/figures/
cp report/figures/mechanism-resnet18.png docs/figures/
python -m evidence.build
