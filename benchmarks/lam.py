"""Why G-FRET's default λ is 0.01: accuracy against λ on CIFAR-10-C.

    FRETTA_DATA=... python benchmarks/lam.py [--images 1024] [--jobs 2]

Needs CIFAR-10 and the ResNet-20 weights (shared data). One continual pass over the 15 corruptions
at severity 5; also each of the four parts of the loss alone. The choice is made on target labels
and on one network: it is a default, not a result.
"""

from __future__ import annotations

import tempfile

from common import arguments

from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.store import Store
from fretta.experiment.suite import parse_suite

SUITE = """
[protocol]
limit = {images}

[[cases]]
data = {{ name = "cifar10", corruption = "all", severity = 5 }}

[cases.model]
spec = "cifar:resnet20"
weights = "cifar10_resnet20.safetensors"
num_classes = 10
size = 32
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]

[[methods]]
name = "bn"

[[methods]]
name = "tent"

[[methods]]
name = "g-fret"
matrix = {{ lr = [1e-4, 1e-3], lam = [0.0, 0.001, 0.01, 0.1, 1.0, 100.0] }}
"""
PARTS = ("l_r_a", "l_r_r", "l_p_a", "l_p_r")
ALONE = """
[[methods]]
name = "g-fret"
label = "g-fret, {part} alone"
lr = 1e-3
lam = 1.0
{off}
"""


def main() -> None:
    parser = arguments(__doc__, images=1024, jobs=2)
    parser.add_argument("--store", help="keep the records here")
    options = parser.parse_args()
    text = SUITE.format(images=options.images)
    for part in PARTS:
        off = "\n".join(f"{other} = false" for other in PARTS if other != part)
        text += ALONE.format(part=part, off=off)
    store = Store(options.store or tempfile.mkdtemp(prefix="fretta-lam-"))
    jobs = parse_suite(text, "lam").jobs()
    run_jobs(jobs, store, parallel=options.jobs, options=Options())
    for job in jobs:
        record = store.get(job.run.key)
        if record is not None and record.status == "done":
            print(f"{job.tags['label']:32} {100 * record.overall['mean_over_domains']:6.2f} %")


if __name__ == "__main__":
    main()
