"""How sharply does the default task react to its hyperparameters? One phase from the base for each setting.

python benchmarks/sweep.py            writes benchmarks/sweep.md; finished settings are not trained again
"""

from __future__ import annotations

from typing import Any

from common import WORK, run_stages, table, write_table
from llmzero.settings import load_settings

SETTINGS: tuple[dict[str, Any], ...] = (
    {"learning_rate": 1e-5},
    {"learning_rate": 3e-5},
    {"learning_rate": 1e-4},
    {"learning_rate": 2e-4},
    {"learning_rate": 3e-4},
    {"learning_rate": 1e-3},
    {"kl_coef": 0.0},
    {"kl_coef": 0.2},
    {"group_size": 16},
    {"group_size": 16, "prompts_per_step": 16, "learning_rate": 2e-4},
    {"temperature": 0.7},
    {"temperature": 1.3},
    {"max_completion_tokens": 12},
    {"updates_per_batch": 2},
)

LONG: tuple[dict[str, Any], ...] = ({"group_size": 16, "prompts_per_step": 12, "learning_rate": 2e-4, "kl_coef": 0.0},)
"""What the base can reach: the strongest setting for LONG_STEPS."""

LONG_STEPS = 600


def main() -> None:
    config = load_settings(None, {"seed": 0})
    rows = []
    plan = [(values, config.steps) for values in SETTINGS] + [(values, LONG_STEPS) for values in LONG]
    for values, steps in plan:
        name = ",".join(f"{k}={v}" for k, v in values.items()) + (f",{steps} steps" if steps != config.steps else "")
        trained, *test = run_stages(WORK / "sweep" / name, config, [(config.hyper.with_values(values), steps)])
        base = trained.curve[0].score if trained.curve and trained.curve[0].step == 0 else float("nan")
        points = [f"{p.score:.2f}" for p in trained.curve if p.step in (20, 40, 60)]
        last = {
            k: trained.summaries[k].window_mean for k in ("reward", "kl", "truncated_share") if k in trained.summaries
        }
        rows.append(
            [
                name.replace(",", ", "),
                f"{base:.2f}",
                " / ".join(points),
                f"{trained.score:.3f} ± {trained.score_se:.3f}" if trained.score is not None else trained.failure,
                f"{test[0].score:.3f}" if test and test[0].score is not None else "",
                f"{last.get('reward', float('nan')):.2f}",
                f"{last['kl']:.3f}" if "kl" in last else "",
                f"{last.get('truncated_share', 0):.2f}",
                f"{trained.cost.wall_s:.0f}",
            ]
        )
    head = ["changed from the default", "start", "after 20 / 40 / 60", "score", "test", "reward", "KL", "cut off", "s"]
    text = (
        f"# Sweep: one phase of {config.steps} steps from the base, embedded default of chemcot\n\n"
        "`python benchmarks/sweep.py`. Default: learning rate 1e-4, KL 0.02, 8 prompts x 8 rollouts, 32 tokens, "
        "temperature 1. Score: validation, kept checkpoint after reloading; reward, KL and the share of cut-off "
        "completions are means of the last quarter. Seconds on a shared 2-core machine: read the ratios.\n\n"
    )
    write_table("sweep.md", text + table(head, rows))


if __name__ == "__main__":
    main()
