"""Fill the tables of README.md and docs/ from the committed records.

    python -m evidence.build           # writes
    python -m evidence.build --check   # fails if a table and the records disagree

A table stands between `<!-- evidence: NAME -->` and `<!-- /evidence -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from fretta.experiment.store import Store
from fretta.experiment.tune import Rule

from . import (
    comparison,
    diagnoses,
    estimates,
    guards,
    network,
    others,
    pages,
    redundancy,
    reliability,
    serving,
    speed,
    streams,
    tables,
    tuning,
)
from .claims import claims_table, claims_text
from .committed import Evidence

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"(<!-- evidence: ([\w-]+) -->\n).*?(<!-- /evidence -->)", re.DOTALL)
PAGES = (
    "evidence",
    "tuning",
    "analysis",
    "source-models",
    "estimate",
    "guard",
    "diagnose",
    "performance",
    "auto",
    "comparison",
    "reliability",
    "serve",
)
FILES = ("README.md", *(f"docs/{name}.md" for name in PAGES))
RULES = (Rule.EXTRA_CORRUPTIONS, Rule.FIRST_DOMAIN, Rule.LABEL_FREE, Rule.ORACLE)

BLOCKS: Mapping[str, Callable[[Evidence], str]] = {
    "results": tables.results_table,
    "summary": tables.summary_table,
    "beaten": tables.beaten,
    "claims": claims_table,
    "claims-in-full": claims_text,
    "cifar10c": partial(tables.corruption_table, suite="cifar10c-shared"),
    "cifar10c-full": partial(tables.corruption_table, suite="cifar10c-shared-full"),
    "cifar10c-resnet18": partial(tables.corruption_table, suite=network.SUITE),
    "first-resnet18": network.first_list,
    "tuned-resnet18": network.tuned_table,
    "weights-resnet18": network.weights_text,
    "auto-network": network.auto_text,
    "auto-imagenet": network.hedge_text,
    "cifar10c-tea": partial(tables.corruption_table, suite="cifar10c-shared-tea"),
    "cifar10c-lt": tables.tail_table,
    "digits-layernorm": tables.layernorm_table,
    "pacs": tables.pacs_table,
    "imagenet": partial(tables.corruption_table, suite="imagenet-shared"),
    "digits": partial(tables.corruption_table, suite="digits-all"),
    "others": others.others_table,
    "others-claims": others.others_claims,
    "parts-behind": others.parts_behind_table,
    "variants": tables.variants_table,
    "switches": pages.switches_table,
    "parts": partial(pages.parts_table, suite="gfret-parts", lams=(pages.LAM, 1.0)),
    "parts-resnet18": partial(pages.parts_table, suite="gfret-parts-resnet18", lams=(pages.LAM,)),
    "lam": pages.lam_table,
    "k": pages.k_table,
    "redundancy": pages.redundancy_table,
    "redundancy-streams": redundancy.streams_text,
    "nrs-in-short": redundancy.read_off_list,
    "mechanism-resnet18": pages.mechanism_table,
    "nrs": pages.nrs_table,
    "digits-corruptions": pages.digits_table,
    "provenance": pages.provenance,
    "not-run": pages.not_run,
    "estimate-fresh": pages.estimate_table,
    "estimate-ranks": estimates.ranks_table,
    "estimate-errors": estimates.errors_table,
    "estimate-others": estimates.others_table,
    "verdicts": estimates.verdicts_table,
    "verdicts-in-short": estimates.verdicts_text,
    "verdicts-auto": estimates.auto_verdicts,
    "verdicts-wrong": estimates.wrong_list,
    "estimate-uneven": estimates.uneven_text,
    "guard-laboratory": guards.laboratory_table,
    "guard-fresh": guards.fresh_table,
    "guard-healthy": guards.healthy_table,
    "guard-decay": guards.decay_table,
    "guard-cost": guards.cost_table,
    "guard-losses": guards.losses_text,
    "guard-small-batches": guards.small_batches_table,
    "diagnose-limits": diagnoses.limits_text,
    "diagnose-recommended": diagnoses.recommended_table,
    "diagnose-uneven": diagnoses.uneven_text,
    "diagnose-pacs": diagnoses.pacs_table,
    "diagnose-layers": diagnoses.layers_text,
    "streams": streams.streams_table,
    "streams-kinds": streams.kinds_of,
    "streams-caption": streams.caption_of,
    "streams-which": streams.which_of,
    "streams-classes": streams.classes_of,
    "rare-classes": tables.rare_text,
    "auto-parts": streams.parts_table,
    "streams-thresholds": streams.thresholds_table,
    "streams-recipes": streams.recipes_table,
    "streams-provenance": streams.provenance_text,
    "speed": speed.speed_text,
    "speed-machines": speed.machines_text,
    "steps": speed.steps_table,
    "steps-contiguous": speed.contiguous_table,
    "steps-networks": speed.networks_table,
    "head": speed.head_table,
    "soak": speed.soak_table,
    "pipeline": speed.pipeline_table,
    "choices": speed.choices_table,
    "precision": speed.precision_table,
    "comparison-speed": comparison.steps_table,
    "comparison-agreement": comparison.agreement_table,
    "serve-load": serving.load_table,
    "serve-kills": serving.kills_text,
    "faults": reliability.faults_table,
    "faults-fixed": reliability.fixed_list,
    "faults-in-short": reliability.faults_text,
    "defaults": tuning.defaults_table,
    "scores": tuning.scores_table,
    "scores-in-short": tuning.scores_text,
    "rates-cifar10c": partial(tuning.rates_table, suite="cifar10c-shared", rule=Rule.ORACLE),
    "rates-resnet18": network.rates_table,
    "rates-digits": partial(tuning.rates_table, suite="digits-all", rule=Rule.ORACLE),
    "rates-pacs": partial(tuning.rates_table, suite="pacs-shared", rule=Rule.FIRST_DOMAIN),
    "rules-cifar10c": partial(tuning.rules_table, suite="cifar10c-shared", rules=RULES),
    "rules-digits": partial(tuning.rules_table, suite="digits-all", rules=RULES),
}


def filled(text: str, evidence: Evidence, where: str) -> str:
    """The page with every block made anew."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if name not in BLOCKS:
            raise SystemExit(f"{where}: no block {name!r}; there are {', '.join(BLOCKS)}")
        return f"{match[1]}{BLOCKS[name](evidence)}\n{match[3]}"

    return BLOCK.sub(block, text)


def stale(root: Path, evidence: Evidence) -> list[str]:
    """The pages that do not say what the records say."""
    texts = {name: (root / name).read_text(encoding="utf-8") for name in FILES}
    return [name for name, text in texts.items() if filled(text, evidence, name) != text]


def main() -> None:
    if "--pack" in sys.argv[1:]:
        for folder in (HERE, HERE / "tuning"):
            print(f"packed {Store(folder).pack()} records of {folder.name}")
    root, evidence = HERE.parent, Evidence(HERE)
    if "--check" in sys.argv[1:]:
        found = stale(root, evidence)
        if found:
            raise SystemExit(
                f"{', '.join(found)}: not what the records say; run python -m evidence.build"
            )
        return
    for name in FILES:
        path = root / name
        text = path.read_text(encoding="utf-8")
        new = filled(text, evidence, name)
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
