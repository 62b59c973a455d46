"""Answers to pathologies of the learning signal: exploration, dead groups, over- and underfitting, health.

The first half, answers to instability, is in `remedies`.
"""

from __future__ import annotations

from llmzero.agents.evidence import Evidence
from llmzero.agents.moves import Option, kl_down, kl_up, put, scale, shift
from llmzero.agents.remedies import Options, exploring, steadying

CLIP_HIGHER = 0.28
"""DAPO's upper clip range."""


def against_entropy_collapse(ev: Evidence) -> Options:
    revive = (
        shift(ev, "temperature", 0.2, "sample more widely than the sharpened policy would"),
        put("clip_high", max(CLIP_HIGHER, ev.hyper.clip_high), "clip-higher leaves rare tokens room to grow"),
        scale(ev, "group_size", 1.5, "more rollouts per prompt, so that some still differ"),
        scale(ev, "learning_rate", 0.7, "slower sharpening"),
    )
    bonus = (
        put("entropy_coef", max(0.005, 2 * ev.hyper.entropy_coef), "pay for entropy directly"),
        shift(ev, "temperature", 0.3, "and sample more widely"),
        kl_up(ev, 2.0, "the anchor's distribution is wider"),
    )
    return (
        Option(
            changes=revive,
            reserve=exploring(ev),
            rationale="The policy has sharpened and stopped gaining: explore more widely and sharpen more slowly.",
            expected="entropy rises off its floor, zero_std_share falls, validation gains again",
            confidence=0.5,
        ),
        Option(
            changes=bonus,
            reserve=exploring(ev),
            rationale="Bolder: an entropy bonus and a wider anchor together.",
            expected="entropy clearly above the parent's",
            confidence=0.3,
        ),
    )


def against_clipping(ev: Evidence) -> Options:
    on_policy = (
        put("updates_per_batch", 1, "each batch used once keeps the ratio at 1"),
        scale(ev, "learning_rate", 0.6, "smaller steps stay inside the trust region"),
        scale(ev, "prompts_per_step", 1.5, "make up for the reuse with more prompts"),
    )
    wider = (
        put("clip_high", max(CLIP_HIGHER, ev.hyper.clip_high + 0.08), "a wider upper range clips fewer tokens"),
        scale(ev, "learning_rate", 0.5, "half the rate moves the ratios half as far"),
        scale(ev, "max_grad_norm", 0.5, "no single update may leave the range at once"),
    )
    return (
        Option(
            changes=on_policy,
            reserve=steadying(ev),
            rationale="Many tokens are clipped, so reused batches teach little: go on-policy and step smaller.",
            expected="the same or a better reward for each generated token",
            confidence=0.5,
        ),
        Option(
            changes=wider,
            reserve=steadying(ev),
            rationale="The other bet: keep the reuse, widen the range and halve the rate.",
            expected="clip_ratio below 0.1",
            confidence=0.3,
        ),
    )


def for_hard_groups(ev: Evidence) -> Options:
    search_wider = (
        scale(ev, "group_size", 2.0, "a rare success needs more tries per prompt to show up"),
        shift(ev, "temperature", 0.15, "more different tries"),
        kl_down(ev, 0.5, "the base mostly fails here: let the policy leave it"),
        scale(ev, "max_completion_tokens", 1.25, "hard items may need longer answers"),
    )
    cover = (
        scale(ev, "prompts_per_step", 2.0, "twice the prompts: more of the few live groups in each step"),
        put("advantage_norm", "batch", "scale by the batch, where the live groups set the scale"),
        scale(ev, "learning_rate", 0.7, "a sparse signal is a noisy one"),
    )
    return (
        Option(
            changes=search_wider,
            reserve=exploring(ev),
            rationale="Most groups fail as a whole: try more, and more differently, on each prompt.",
            expected="zero_std_share falls below 0.5 and the reward starts to move",
            confidence=0.5,
        ),
        Option(
            changes=cover,
            reserve=exploring(ev),
            rationale="The other bet: cover more prompts a step and learn from the few that can be solved.",
            expected="smoother, slower progress from the solvable prompts",
            confidence=0.35,
        ),
    )


def for_easy_groups(ev: Evidence) -> Options:
    harder = (
        scale(ev, "prompts_per_step", 1.5, "most prompts are solved: draw more to meet the unsolved ones"),
        shift(ev, "temperature", 0.2, "mistakes must be sampled before they can be unlearned"),
        scale(ev, "group_size", 1.5, "larger groups catch the rare failure"),
    )
    finish = (
        scale(ev, "learning_rate", 0.5, "only the tail is left: fine steps"),
        kl_down(ev, 0.3, "the anchor holds back the last gains"),
        scale(ev, "prompts_per_step", 2.0, "twice the prompts to meet enough unsolved ones"),
    )
    return (
        Option(
            changes=harder,
            reserve=exploring(ev),
            rationale="Most groups succeed as a whole: look for the prompts and samples that still fail.",
            expected="zero_std_share falls and the weakest subtask gains",
            confidence=0.5,
        ),
        Option(
            changes=finish,
            reserve=steadying(ev),
            rationale="The other bet: finish with fine steps and a loose anchor.",
            expected="a small, steady gain",
            confidence=0.4,
        ),
    )


def against_overfitting(ev: Evidence) -> Options:
    hold = (
        scale(ev, "learning_rate", 0.5, "the training reward outran validation"),
        kl_up(ev, 2.0, "the anchor generalises"),
        scale(ev, "prompts_per_step", 1.5, "more different prompts in every step"),
    )
    diversify = (
        shift(ev, "temperature", 0.2, "varied samples are harder to memorise"),
        scale(ev, "prompts_per_step", 2.0, "twice the prompts a step"),
        put("updates_per_batch", 1, "no second look at the same batch"),
        put("lr_schedule", "linear", "a decaying rate ends before it overfits"),
    )
    return (
        Option(
            changes=hold,
            reserve=steadying(ev),
            rationale="Training and validation part: slow down, anchor, and see more prompts a step.",
            expected="the validation curve keeps rising to the end of the phase",
            confidence=0.5,
        ),
        Option(
            changes=diversify,
            reserve=exploring(ev),
            rationale="The other bet: more variety instead of more restraint.",
            expected="a lower training reward, a higher validation score",
            confidence=0.35,
        ),
    )


def against_over_regularisation(ev: Evidence) -> Options:
    loosen = (
        kl_down(ev, 0.1, "the anchor pins the policy"),
        scale(ev, "learning_rate", 1.5, "and a somewhat larger step uses the freedom"),
        scale(ev, "group_size", 1.5, "cleaner advantages for the larger step"),
    )
    free = (
        put("kl_coef", 0.0, "no anchor at all"),
        scale(ev, "group_size", 2.0, "larger groups keep an unanchored policy honest"),
        shift(ev, "temperature", 0.1, "explore away from the base"),
    )
    return (
        Option(
            changes=loosen,
            reserve=exploring(ev),
            rationale="A strong KL term pins a policy that does not move: loosen it and step larger.",
            expected="kl leaves 0 and the reward rises with it",
            confidence=0.6,
        ),
        Option(
            changes=free,
            reserve=exploring(ev),
            rationale="Bolder: drop the anchor and rely on larger groups.",
            expected="a clear rise of reward and kl",
            confidence=0.45,
        ),
    )


def against_timidity(ev: Evidence) -> Options:
    faster = (
        scale(ev, "learning_rate", 3.0, "nothing moved: the steps are too small"),
        kl_down(ev, 0.3, "less pull back to the anchor"),
        scale(ev, "group_size", 1.5, "cleaner advantages carry a larger step"),
    )
    bolder = (
        scale(ev, "learning_rate", 6.0, "well beyond: the useful range may be far up"),
        scale(ev, "prompts_per_step", 1.5, "larger batches bear larger steps"),
        put("max_grad_norm", min(0.5, ev.hyper.max_grad_norm), "with a cap on any one step"),
    )
    reuse = (
        put("updates_per_batch", 2, "two updates from each batch"),
        scale(ev, "learning_rate", 1.5, "and a slightly larger step"),
        kl_down(ev, 0.3, "less pull back to the anchor"),
    )
    return (
        Option(
            changes=faster,
            reserve=exploring(ev),
            rationale="Reward, entropy and KL stand still: step three times as large with a looser anchor.",
            expected="kl leaves 0 and the reward rises within the phase",
            confidence=0.6,
        ),
        Option(
            changes=bolder,
            reserve=exploring(ev),
            rationale="Bolder still, with larger batches and a norm cap as a safety.",
            expected="a steep rise, or a KL spike that marks the upper edge",
            confidence=0.4,
        ),
        Option(
            changes=reuse,
            reserve=exploring(ev),
            rationale="The other bet: more updates from the same rollouts instead of larger ones.",
            expected="faster progress for the same generated tokens",
            confidence=0.35,
        ),
    )


def for_exploration(ev: Evidence) -> Options:
    wider = (
        shift(ev, "temperature", 0.25, "completions of one prompt are nearly alike"),
        put("top_p", 1.0, "the whole distribution may be sampled"),
        scale(ev, "group_size", 2.0, "more rollouts per prompt find more different answers"),
    )
    return (
        Option(
            changes=wider,
            reserve=exploring(ev),
            rationale="Samples of one prompt hardly differ: sample wider and more.",
            expected="reward_std rises and zero_std_share falls at once, the reward follows",
            confidence=0.55,
        ),
        Option(
            changes=(
                put("entropy_coef", max(0.005, 2 * ev.hyper.entropy_coef), "pay for variety directly"),
                kl_down(ev, 0.3, "less pull to the narrow anchor"),
                scale(ev, "group_size", 1.5, "more rollouts per prompt"),
            ),
            reserve=exploring(ev),
            rationale="The other bet: an entropy bonus instead of a hotter sampler.",
            expected="entropy rises over the phase",
            confidence=0.3,
        ),
    )
