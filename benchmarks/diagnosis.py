"""Is the diagnosis right? Real curves with labels, for the playbook and for any language model.

python benchmarks/diagnosis.py                          scores the playbook, writes benchmarks/diagnosis.md
python benchmarks/diagnosis.py --llm-model NAME [--llm-base-url URL] [--show plots|text|both|all]
                                                        scores a model; its calls are kept and never repeated
python benchmarks/diagnosis.py make [CASE ...]          trains the curves; what is trained already is not trained again
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import WORK, table, write_table
from diagnosis_cases import HOME, LABELS, Case, Stored, broken, facts, load_cases, load_stored
from diagnosis_score import KINDS, SHOWS, Answer, calls_folder, llm_answers, playbook_answers, share, spent
from llmzero.agents.llm.prompt import Show
from llmzero.domain.config import LLMConfig
from llmzero.domain.errors import LLMZeroError, UsageError, did_you_mean
from llmzero.settings import load_settings

FEW = """The cases are few, and chosen to be different rather than drawn from real searches: read the intervals (Wilson,
95 %), and no share as a rate in use. Most paths that begin with a good phase share it, so that one trait of that phase
can decide several of them. The playbook's first score on this set was 12 of 21; signs of it were mended after that, so
that its present score is an optimistic one."""
HOW = f"""# Diagnosis: is the named pathology right?

`python benchmarks/diagnosis.py`. Real curves of the embedded base of chemcot, trained by the same worker as the phases
of a search (`python benchmarks/diagnosis.py make`). A label follows from how a curve was made and from a criterion on
the stored numbers, both in `diagnosis/labels.toml`; a test checks every criterion. Right means: the pathology named
first is among the accepted ones.

{FEW}
"""
NOTATION = (
    "`NAME_start` and `NAME_end`: means of the first 5 and last 15 steps of the last phase, the one that is diagnosed; "
    "`NAME_base`: of the path's first 5 steps; `CASE.NAME`: of another case, the control. `gain` is the score of the "
    "phase's kept checkpoint minus that of its start (`start`), `gain_se` its standard error; `curve_` the validation "
    "within the phase; `NAME_jumps` the steps above 5 times the median."
)
NO_MODEL = """## A language model

Not measured here: no language model was at hand. The command for any OpenAI-compatible endpoint, which writes three
columns (what the picture alone, the tables alone and both are worth):

    python benchmarks/diagnosis.py --llm-model NAME --llm-base-url URL --show all
"""


def main(words: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(words)
    try:
        return _run(given)
    except LLMZeroError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace) -> int:
    cases = load_cases(given.labels)
    if given.act == "make":
        from diagnosis_make import make_case

        for case in _chosen(cases, given.cases):
            print(f"{case.name} ...", file=sys.stderr)
            make_case(case, given.home)
        return 0
    stored = [load_stored(case, given.home) for case in cases.values()]
    _check(stored)
    if given.llm_model:
        flags = {"llm_model": given.llm_model, **({"llm_base_url": given.llm_base_url} if given.llm_base_url else {})}
        config = load_settings(given.config, flags, os.environ).llm
        _write_llm(stored, config, SHOWS if given.show == "all" else (given.show,), given.work)
    else:
        write_table("diagnosis.md", playbook_page(stored, playbook_answers(stored)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Score the playbook, or a language model, on the diagnosis set.")
    parser.add_argument("act", nargs="?", choices=("score", "make"), default="score")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="make only these")
    parser.add_argument("--llm-model", default="", help="score this model instead of the playbook")
    parser.add_argument("--llm-base-url", default="", help="its endpoint; else OPENAI_BASE_URL, else OpenAI's own")
    parser.add_argument("--show", choices=(*SHOWS, "all"), default="all")
    parser.add_argument("--config", type=Path, help="settings file with a table [llm]: retries, usd, prices, ...")
    parser.add_argument("--labels", type=Path, default=LABELS)
    parser.add_argument("--home", type=Path, default=HOME, help="folder of the stored curves")
    parser.add_argument("--work", type=Path, default=WORK / "diagnosis", help="folder of recorded calls and their page")
    return parser


def _chosen(cases: Mapping[str, Case], names: Sequence[str]) -> list[Case]:
    for name in names:
        if name not in cases:
            raise UsageError(f"no case {name!r} in the labels: {did_you_mean(name, cases)}")
    return [case for name, case in cases.items() if not names or name in names]


def _check(stored: Sequence[Stored]) -> None:
    """No score against a label whose criterion does not hold."""
    known = {each.case.name: facts(each) for each in stored}
    for each in stored:
        if wrong := broken(each.case, known):
            raise UsageError(f"case {each.case.name}: its criterion does not hold: {'; '.join(wrong)}")


def playbook_page(stored: Sequence[Stored], answers: Sequence[Answer]) -> str:
    rows = [
        [
            each.case.name,
            ", ".join(each.case.accepted),
            answer.words,
            "yes" if answer.right else "**no**",
            answer.evidence,
            ", ".join(answer.others) or "-",
        ]
        for each, answer in zip(stored, answers, strict=True)
    ]
    head = ["case", "accepted", "playbook says", "right", "its first evidence", "also in sight"]
    made = [[each.case.name, each.case.made, each.case.why, "; ".join(each.case.criterion)] for each in stored]
    return "\n".join(
        [
            HOW,
            f"Playbook, top-1: **{share(answers)}**.",
            "",
            table(head, rows),
            "",
            "## Confusion",
            "",
            "Rows: the label (the first accepted name). Columns: what the playbook said. Bold: accepted.",
            "",
            confusion(answers),
            "",
            "## How each curve was made, and the criterion its label rests on",
            "",
            NOTATION,
            "",
            table(["case", "made", "why the label", "criterion"], made),
            "",
            NO_MODEL,
        ]
    )


def confusion(answers: Sequence[Answer]) -> str:
    """Labels against what was said, as a table of counts."""
    labels = list(dict.fromkeys(a.case.accepted[0] for a in answers))
    named = [answer.words for answer in answers]
    said = list(dict.fromkeys([*(label for label in labels if label in named), *named]))
    rows = []
    for label in labels:
        cells = [[a for a in answers if a.case.accepted[0] == label and a.words == name] for name in said]
        rows.append([label, *(_count(cell) for cell in cells)])
    return table(["label", *said], rows)


def _count(cell: Sequence[Answer]) -> str:
    if not cell:
        return ""
    return f"**{len(cell)}**" if all(a.right for a in cell) else str(len(cell))


def _write_llm(stored: Sequence[Stored], config: LLMConfig, shows: Sequence[Show], work: Path) -> None:
    found = {show: llm_answers(stored, config, show, work) for show in shows}
    page = f"{llm_page(config.model, found)}\n\n{spent(config, work)}"
    name = "".join(c if c.isalnum() else "-" for c in config.model)
    (work / f"{name}.md").write_text(page + "\n", encoding="utf-8")
    print(page)
    folder = calls_folder(config, work)
    print(f"written to {work / f'{name}.md'}; to ask again, remove {folder}", file=sys.stderr)


def llm_page(model: str, found: Mapping[str, Sequence[Answer]]) -> str:
    """One model's scores, a column for each way of showing."""
    shows, cases = list(found), [a.case for a in next(iter(found.values()))]
    totals = [["**right**", *(share(found[show]) for show in shows)]]
    totals += [[kind, *(sum(a.kind == kind for a in found[show]) for show in shows)] for kind in KINDS]
    totals += [["picture refused by the endpoint", *(sum(a.blind for a in found[show]) for show in shows)]]
    rows = [
        [case.name, ", ".join(case.accepted), *(_cell(found[show][at]) for show in shows)]
        for at, case in enumerate(cases)
    ]
    return "\n".join(
        [
            f"# Diagnosis by {model}",
            "",
            f"{FEW} A call that failed and a reply that could not be used count as wrong.",
            "",
            table(["", *shows], totals),
            "",
            table(["case", "accepted", *shows], rows),
        ]
    )


def _cell(answer: Answer) -> str:
    return f"{answer.words}{' (right)' if answer.right else ''}"


if __name__ == "__main__":
    sys.exit(main())
