"""The playbook's rules as data: name, what is known about it, the signs, the answer. Ordered by severity.

`basis` is "documented" where a public source describes the signs or a named recipe uses the answer, and "common
practice" where it is habit without a source; the numbers in `signs` are ours unless a source is named for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llmzero.agents import progress, remedies, signals, signs
from llmzero.agents.evidence import Evidence
from llmzero.agents.moves import Option


@dataclass(frozen=True, slots=True)
class Rule:
    """One pathology. `test` gives evidence lines, or () where it is absent; `remedy` gives ranked options."""

    name: str
    basis: Literal["documented", "common practice"]
    source: str
    title: str
    test: Callable[[Evidence], tuple[str, ...]]
    remedy: Callable[[Evidence], tuple[Option, ...]]

    @property
    def told(self) -> str:
        """How well the rule is known, for a proposal: its basis and source."""
        return f"{self.basis}: {self.source}"


RULES: tuple[Rule, ...] = (
    Rule(
        "collapse",
        "common practice",
        "reports of sudden late collapse: Search-R1 issue 88, ConvSearch-R1 issue 6",
        "The phase lost what its start could do",
        signs.collapse,
        remedies.after_collapse,
    ),
    Rule(
        "kl_spike",
        "documented",
        "torchforge issue 664; rlhf-book issue 489; a lone early spike that recovers needs no action",
        "The policy runs away from its anchor",
        signs.kl_spike,
        remedies.against_drift,
    ),
    Rule(
        "gradient_spikes",
        "documented",
        "TRL issue 2980; NeMo-RL pull request 4161",
        "Gradient norms spike",
        signs.gradient_spikes,
        remedies.against_gradient_spikes,
    ),
    Rule(
        "entropy_explosion",
        "documented",
        "rllm issue 116; verl issue 2738 (cause unsettled)",
        "The policy's entropy explodes",
        signs.entropy_explosion,
        remedies.against_entropy_explosion,
    ),
    Rule(
        "length_collapse",
        "documented",
        "open-r1 issue 255; TRL loss_type documentation",
        "Answers shrink without a gain",
        signs.length_collapse,
        remedies.against_short_answers,
    ),
    Rule(
        "truncation",
        "documented",
        "verl best practices; DAPO; TRL issue 5697; DeepScaleR's stages",
        "Completions hit the length cap",
        signs.truncation,
        remedies.against_truncation,
    ),
    Rule(
        "entropy_collapse",
        "documented",
        "verl docs/algo/entropy.md; DAPO clip-higher; Skywork-OR1 arXiv:2505.22312",
        "The policy has sharpened and stopped gaining",
        signs.entropy_collapse,
        signals.against_entropy_collapse,
    ),
    Rule(
        "clip_saturation",
        "common practice",
        "TRL issue 2980; no authoritative range known",
        "Reused batches are clipped away",
        signs.clip_saturation,
        signals.against_clipping,
    ),
    Rule(
        "overfitting",
        "common practice",
        "ConvSearch-R1 issue 6; no quantified source known",
        "Validation falls while training improves",
        signs.overfitting,
        signals.against_overfitting,
    ),
    Rule(
        "train_val_gap",
        "documented",
        "open-r1 issue 255; verl best practices (reward hacking)",
        "The training reward climbs and validation does not",
        signs.train_val_gap,
        progress.distrust_reward,
    ),
    Rule(
        "zero_advantage_hard",
        "documented",
        "DAPO dynamic sampling; TRL issues 3857 and 3452",
        "Most groups fail as a whole and teach nothing",
        signs.zero_advantage_hard,
        signals.for_hard_groups,
    ),
    Rule(
        "zero_advantage_easy",
        "documented",
        "DAPO dynamic sampling; POLARIS drops easy prompts between stages",
        "Most groups succeed as a whole and teach nothing",
        signs.zero_advantage_easy,
        signals.for_easy_groups,
    ),
    Rule(
        "over_regularised",
        "documented",
        "TRL issue 2908; ProRL arXiv:2505.24864",
        "A strong KL term pins the policy",
        signs.over_regularised,
        signals.against_over_regularisation,
    ),
    Rule(
        "too_timid",
        "common practice",
        "no source; the opposite of a KL spike",
        "Nothing moves: the steps are too small",
        signs.too_timid,
        signals.against_timidity,
    ),
    Rule(
        "under_exploration",
        "documented",
        "QuantumScribe train_grpo.py; prime-rl rules of thumb",
        "Samples of one prompt hardly differ",
        signs.under_exploration,
        signals.for_exploration,
    ),
    Rule(
        "reward_plateau",
        "documented",
        "ProRL arXiv:2505.24864 (new reference and optimizer); DeepScaleR and POLARIS stages",
        "The phase is used up",
        signs.reward_plateau,
        progress.change_phase,
    ),
    Rule(
        "slow_progress",
        "common practice",
        "no source; the milder form of too_timid",
        "Progress is sound but slow, far from the top",
        signs.slow_progress,
        progress.speed_up,
    ),
    Rule(
        "unmeasured",
        "common practice",
        "no source; nothing to read is no diagnosis",
        "Nothing of the phase can be read",
        signs.unmeasured,
        progress.probe,
    ),
    Rule(
        "healthy",
        "common practice",
        "larger groups in later stages: DeepScaleR 8 to 16; lower KL and rate in its NeMo-RL recipe",
        "No pathology in sight",
        signs.healthy,
        progress.keep_going,
    ),
)


def diagnose(ev: Evidence) -> tuple[tuple[Rule, tuple[str, ...]], ...]:
    """Every rule whose signs are present, most severe first, with its evidence lines. Never empty."""
    found = tuple((rule, lines) for rule in RULES if (lines := rule.test(ev)))
    return found if len(found) == 1 else tuple((rule, lines) for rule, lines in found if rule.name != "healthy")
