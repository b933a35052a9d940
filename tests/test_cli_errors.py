"""Wrong input: one line that names the option, never a traceback. Piped tables keep their rows."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest

import fretta as library
from commands import fretta
from fretta.cli.messages import name_options, print_warnings_in_one_line
from fretta.errors import HeadError, NeedError, SmallBatchWarning
from fretta.experiment.store import Store
from nets import build
from test_results import record


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an empty folder, a file and a store of long-named runs."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("hello")
    store = Store(tmp_path / "store")
    for label in ("g-fret", "tent " + " ".join(f"hyperparameter{i}=0.{i}" for i in range(9))):
        store.put(record(label, 0, 0.5, suite="a-suite-of-a-long-name" * 2, case="a/case" * 8))
        store.put(record(label, 1, 0.5, suite="b", case="c"))
    return tmp_path


NUMBERS = """
run smoke --jobs 0
run smoke --seed -1
run smoke --checkpoint nan
run smoke --jobs x
tune smoke --method tent --rule oracle --optuna 0
evaluate --model digits --data digits --method source --corruption fog --severity 9
corrupt empty out --severity 9
corrupt empty out --severity 5-1
train digits --out x.safetensors --epochs 0
train digits --out x.safetensors --lr nan
train digits --out x.safetensors --batch-size 1
analyze redundancy --severity 0
analyze tsne --images 1
analyze sensitivity --k1 1.5
analyze sensitivity --lam x
adapt --model digits --data empty --out o --batch-size 0
bench-steps --num-classes 0
watch store --no-browser --port 99999
results store --level nope
results store --format nope
"""

NAMES = [
    ("check resnet18", "is not understood"),
    ("check", "give the model once"),
    ("check digits --model digits", "give the model once"),
    ("check digits --num-classes 3", "--num-classes 3"),
    ("check timm:resnet18 --weights no.pt", "no weights file"),
    ("check my.nets:small", "PYTHONPATH"),
    ("run nosuite", "digits"),  # says which there are
    ("run smoke --method nope", "tent"),
    ("run smoke --store file.txt", "file.txt"),
    ("run smoke --device nope", "--device nope"),
    ("tune smoke --method tent --rule nope", "--rule nope"),
    ("tune smoke --method source --rule oracle", "--grid"),
    ("tune smoke --method tent --rule oracle --grid lr", "--grid"),
    ("tune smoke --method tent --rule oracle --product --optuna 3", "--optuna"),
    ("tune smoke --method tent --rule oracle --out empty", "--out"),
    ("evaluate --model digits --data digits --method nope", "--method"),
    ("evaluate --model digits --data digits --method bn --severity 3", "--corruption"),
    ("evaluate --model digits --data digits --method eata", "--source"),
    ("evaluate --model digits --data pacs --method bn", "--root"),
    ("analyze redundancy --method nope", "--method"),
    ("compare --model digits --data digits --methods ''", "--methods"),
    ("compare --model digits --data nowhere", "nor a data set"),
    ("compare --model digits --data digits --methods tant", "did you mean 'tent'"),
    ("compare --model digits --data digits --set lr=1", "METHOD.NAME=VALUE"),
    ("compare --model digits --data digits --mean x", "--mean 'x'"),
    ("compare --model digits --data empty --order nonsense", "--order are for data sets"),
    ("compare --model digits --data empty --order continual", "--order are for data sets"),
    ("compare --model digits --data digits --labels file.txt", "--labels 'file.txt'"),
    ("evaluate --model digits --data digits --method bn --labels file.txt", "--labels 'file.txt'"),
    ("train digits --out d.safetensors --progressive inf,32", "--progressive inf,32"),
    ("train digits --out d.safetensors --progressive 16.7,32", "--progressive 16.7,32"),
    ("compare --model digits --data nowhere --labels file.txt", "nor a data set"),
    ("diagnose --model digits --data empty --order mixed", "--order are for data sets"),
    ("diagnose --model digits --data digits --labels file.txt", "--labels 'file.txt'"),
    ("compare --model digits --data digits --prior ten=0.5", "does not have: ten"),
    ("compare --model digits --data digits --prior half", "--prior 'half'"),
    ("adapt --model digits --data pictures --out o --device nope", "--device nope"),
    ("check cifar:resnet20 --head nope --size 32", "--head nope"),
    ("doctor nope", "officehome"),
    ("corrupt empty file.txt", "is a file"),
    ("corrupt empty out --corruption ''", "--corruption"),
    ("results gone", "fretta run"),
    ("results file.txt", "folder"),
    ("results store --suite nope", "a-suite-of-a-long-name"),
    ("results store --out x.txt", ".csv"),
    ("run smoke --ray 127.0.0.1:abc", "'abc'"),
]


@pytest.mark.parametrize("line", NUMBERS.strip().splitlines())
def test_a_value_out_of_range_names_its_option(line: str, place: Path) -> None:
    out = fretta(*line.split(), cwd=place)
    assert out.returncode == 2
    assert line.split()[-2] in out.stderr


@pytest.mark.parametrize(("line", "fact"), NAMES)
def test_a_wrong_name_is_an_error_with_the_facts(line: str, fact: str, place: Path) -> None:
    if "--ray" in line:
        pytest.importorskip("ray")
    out = fretta(*shlex.split(line), cwd=place)
    assert out.returncode == 2
    assert out.stderr.startswith("error: ")
    assert out.stderr.count("\n") == 1
    assert fact in out.stderr
    assert "suite 'evaluate'" not in out.stderr  # nobody wrote such a suite


def test_help() -> None:
    out = fretta()
    assert out.returncode == 2
    assert "Usage" in out.stdout + out.stderr
    out = fretta("--help", columns=200)
    listed = re.findall(r"^│ ([a-z][a-z-]+) +(\S.*?) *│$", out.stdout, re.M)
    assert len(listed) == 19
    assert all(text[0].isupper() and text[-1] in ".?" for _, text in listed)


@pytest.mark.parametrize("level", ["methods", "runs", "domains"])
def test_a_row_of_a_piped_table_is_a_line(level: str, place: Path) -> None:
    lines = fretta("results", "store", "--level", level, cwd=place, columns=40).stdout.splitlines()
    assert len(lines) == 1 + 4
    assert len([line for line in lines if "g-fret" in line]) == 2  # grep finds whole rows
    long = [line for line in lines if "hyperparameter8" in line]
    assert len(long) == 2
    assert all("hyperparameter0" in line for line in long)


def test_the_name_of_a_results_file_is_its_format(place: Path) -> None:
    assert fretta("results", "store", "--out", "x.csv", cwd=place).stdout == ""
    assert (place / "x.csv").read_text().startswith("suite,case,method")


# ---- Python arguments become options ------------------------------------------------------------

MESSAGES = [
    ("adapt", "give batches of them with source=; without", "with --source; without"),
    ("adapt", "name the right one: head='fc'", "name the right one: --head fc"),
    ("adapt", "Name another module with head='...', or", "with --head NAME, or"),
    ("adapt", "num_classes=7, but the card says 10", "--num-classes 7, but"),
    ("adapt", "lr=-1 cannot work; give", "--set lr=-1 cannot work"),
    ("train", "the loss is not finite at lr=3.0; lower it", "at --lr 3.0; lower"),
    ("train", "of another run; choose another name, or overwrite=True", "or --overwrite"),
    ("evaluate", "tipi: std= is not given: give std=(...)", "--set std=... is not given"),
    ("evaluate", "std=(0.5, 0.5), as many as", "--std 0.5,0.5, as many"),
    ("evaluate", "open the data set with size=160", "with --size 160"),
    ("evaluate", "domains=['fog', 'snow'] are unknown", "--domain fog --domain snow are"),
    ("evaluate", "open it with severity=[1, 2]", "with --severity 1 --severity 2"),
    ("corrupt", "unreadable; errors='skip' leaves it out", "; --skip-unreadable leaves"),
    ("results", "unreadable; errors='skip' leaves it out", "; errors='skip' leaves"),
    # of bn, which the message names; not the option of that name
    ("adapt", "or use 'bn' with alpha=0.25, which", "'bn' with --set alpha=0.25, which"),
    ("adapt", "alpha='x'; one of white, black", "--alpha x; one of"),
    ("run", "suite 'a.toml': limit='x'; a number", "suite 'a.toml': limit='x'; a number"),
    # not an option: Python, a path, an address
    ("adapt", "give inplace=True to adapt", "give inplace=True to adapt"),
    ("adapt", "http://host/?head=1 and `self.head=x`", "http://host/?head=1 and `self.head=x`"),
    ("results", "lr=1 is no column", "lr=1 is no column"),
    ("analyze redundancy", "give source=", "give --source"),
]


@pytest.mark.parametrize(("command", "message", "expected"), MESSAGES)
def test_python_arguments_become_options(command: str, message: str, expected: str) -> None:
    assert expected in name_options(message, [*command.split(), "--out", "x"])


def test_one_error_in_python_and_on_the_command_line() -> None:
    with pytest.raises(NeedError, match=r"source="):
        library.adapt(build("resnet-like"), "eata")
    with pytest.raises(HeadError, match="head='nosuch'"):
        library.adapt(build("resnet-like"), "tent", head="nosuch")
    line = "evaluate --model digits --data digits --method eata"
    eata = fretta(*line.split())
    assert "--source" in eata.stderr
    assert "source=" not in eata.stderr
    line = "check cifar:resnet20 --size 32 --head nosuch"
    head = fretta(*line.split())
    assert "--head nosuch is not a module" in head.stderr


def test_a_warning_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # put back at the end
    print_warnings_in_one_line(["evaluate"])
    message, where = "use 'bn' with alpha=0.25", ("adapter.py", 3)
    line = warnings.formatwarning(SmallBatchWarning(message), SmallBatchWarning, *where)
    assert line == "warning: use 'bn' with --set alpha=0.25\n"
    assert "adapter.py" in warnings.formatwarning(UserWarning(message), UserWarning, *where)
