"""Tables of docs/reliability.md, from what benchmarks/faults.py counted."""

from __future__ import annotations

from typing import Any

from .committed import Evidence
from .tables import markdown

AREAS = {
    "batches": "Batches",
    "models": "Models",
    "states": "States",
    "files": "Files",
    "stores": "Stores and output folders",
    "kills": "Kills",
    "cluster": "Kills on Ray",
    "load": "Load",
    "live": "Live page",
    "service": "Service",
}
# What the campaign broke before it was fixed: the beginning of a promise, how often of how many
# cases when first tried, what was wrong, and the test of it.
FIXED: tuple[tuple[str, str, str], ...] = (
    (
        "after an error the adapter equals",
        "counters, random numbers, a started guard and a prepared first batch stayed; now a step is"
        " undone as a whole",
        "test_adapter.py::test_an_interrupted_step_leaves_no_trace",
    ),
    (
        "a batch that is taken gives finite",
        "NaN was returned for pixels of 1e30, and stayed in moving statistics",
        "test_adapter.py::test_an_overflow_costs_one_batch_not_the_adapter",
    ),
    (
        "a batch of any kind",
        "a share of the batch as statistics with a method that learns; adaptive statistics under"
        " autocast; sparse batches; a head looked for in a batch that does not fit",
        "test_statistics.py::test_other_statistics_with_a_method_that_learns",
    ),
    (
        "a model of any kind",
        "quantized and lazy models ended in errors of torch, LAME and T3A in half precision too",
        "test_adapter.py::test_quantized_and_lazy_layers_are_refused",
    ),
    (
        "KeyboardInterrupt anywhere",
        "without a guard half a step stayed",
        "test_adapter.py::test_an_interrupted_step_leaves_no_trace",
    ),
    (
        "two threads on one adapter",
        "steps ran into each other; now they take turns",
        "test_adapter.py::test_threads_take_turns",
    ),
    (
        "deepcopy and pickle",
        "torch.save of an adapter failed in channels-last",
        "test_adapter.py::test_an_adapter_in_a_file_goes_on",
    ),
    (
        "a state of another model",
        "a model of the same names and shapes took it; states now name their weights",
        "test_adapter.py::test_states_that_do_not_belong_here_change_nothing",
    ),
    (
        "a damaged state",
        "errors of torch at loading, or at a later step; states are now sealed",
        "test_adapter.py::test_states_that_do_not_belong_here_change_nothing",
    ),
    (
        "a damaged or lying weights file",
        "OSError for torch files that were cut",
        "models/test_hostile_files.py::test_a_torch_file_cut_anywhere",
    ),
    (
        "hostile file names",
        "a carriage return in a name tore the table",
        "deploy/test_deploy_safety.py::test_names_of_every_kind_in_the_table",
    ),
    (
        "absurd cards",
        "endless nesting, a label of spaces, a data set called 7",
        "models/test_hostile_files.py::test_json_without_an_end",
    ),
    (
        "an hf: folder",
        "transformers asked on the terminal whether to run the code, and errors were its own",
        "models/test_hostile_files.py::test_a_folder_that_wants_remote_code",
    ),
    (
        "a truncated, edited",
        "JSONDecodeError for a damaged line of a packed store",
        "execute/test_executor_records.py::test_a_packed_store_says_the_same",
    ),
    (
        "kill -9 of fretta adapt",
        "health.jsonl: while the source model predicted, the redundancy of features was that of an"
        " earlier batch, and missing after a resume",
        "test_guard.py::test_health_while_the_source_predicts_is_that_of_the_batch",
    ),
    (
        "kill -9 of fretta run --ray",
        "the mark by which workers know the store stayed among the checkpoints; now it is hidden,"
        " as drafts of files are",
        "execute/test_ray_cluster.py::test_interrupted_and_impossible_calls",
    ),
    (
        "a damaged or foreign checkpoint",
        "an empty checkpoint, zeros in health.jsonl; an edited row went unnoticed",
        "deploy/test_deploy_resume.py::test_an_edited_number_is_noticed",
    ),
)


def rows(evidence: Evidence) -> list[dict[str, Any]]:
    areas = evidence.benchmark("faults")["areas"]
    return [{**row, "area": AREAS[name]} for name in areas for row in areas[name]["rows"]]


def fixed(promise: str) -> tuple[str, str] | None:
    found = [(what, test) for begin, what, test in FIXED if promise.startswith(begin)]
    return found[0] if found else None


def faults_table(evidence: Evidence) -> str:
    """Promise, tried, failed, fixed in."""
    table = []
    for row in rows(evidence):
        found = fixed(row["promise"])
        test = "" if found is None else f"`{found[1].partition('::')[2]}`"
        promise = f"*{row['area']}*: {row['promise']}"
        table.append([promise, f"{row['tried']:,}", str(row["failed"]), test])
    return markdown(["promise", "tried", "failed", "fixed in"], table)


def fixed_list(evidence: Evidence) -> str:
    """What was wrong."""
    promises = [row["promise"] for row in rows(evidence)]
    lines = []
    for begin, what, test in FIXED:
        for promise in (p for p in promises if p.startswith(begin)):
            lines.append(f"- *{promise}*: {what}. `tests/{test}`")
    return "\n".join(lines)


def faults_text(evidence: Evidence) -> str:
    content = evidence.benchmark("faults")
    found = rows(evidence)
    tried, failed = (sum(row[name] for row in found) for name in ("tried", "failed"))
    minutes = sum(area["seconds"] for area in content["areas"].values()) / 60
    made = content["provenance"]
    return (
        f"**{tried:,} trials of {len(found)} promises, {failed} failed**, in {minutes:.0f} minutes"
        f" on a busy machine\n(seed {content['areas']['batches']['seed']}, torch {made['torch']},"
        f" Python {made['python']}, CPU)."
    )
