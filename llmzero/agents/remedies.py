"""What each pathology is answered with: ranked options, the usual answer first, then a bolder one or the other bet.

Every reason is a hypothesis the search tests; factors are relative to the parent's own values.
"""

from __future__ import annotations

from llmzero.agents.evidence import Evidence
from llmzero.agents.moves import Option, kl_down, kl_up, put, scale, shift
from llmzero.domain.types import Change

Options = tuple[Option, ...]


def steadying(ev: Evidence) -> tuple[Change, ...]:
    """Reserve moves that make updates calmer."""
    return (
        scale(ev, "prompts_per_step", 1.5, "more prompts a step average out gradient noise"),
        put("lr_schedule", "linear", "a decaying rate ends the phase in small steps"),
        scale(ev, "max_grad_norm", 0.5, "a lower norm cap bounds any one step"),
        shift(ev, "warmup_steps", 5, "a fresh optimizer starts with poor moment estimates"),
    )


def exploring(ev: Evidence) -> tuple[Change, ...]:
    """Reserve moves that make completions of one prompt differ more."""
    return (
        scale(ev, "group_size", 1.5, "more rollouts per prompt find more different answers"),
        shift(ev, "temperature", 0.1, "a higher temperature spreads the samples"),
        put("top_p", 1.0, "the whole distribution may be sampled"),
        kl_down(ev, 0.5, "a looser anchor lets the policy move"),
        put("entropy_coef", max(0.002, ev.hyper.entropy_coef), "a small entropy bonus keeps alternatives alive"),
    )


def after_collapse(ev: Evidence) -> Options:
    calm = (
        scale(ev, "learning_rate", 0.25, "steps this large destroyed what the parent could do"),
        kl_up(ev, 3.0, "a stronger anchor pulls the policy back towards the base"),
        scale(ev, "max_grad_norm", 0.5, "no single batch may move the weights far"),
        put("updates_per_batch", 1, "every update on fresh, on-policy samples"),
        shift(ev, "warmup_steps", 5, "a fresh optimizer starts with poor moment estimates"),
    )
    calmer = (
        scale(ev, "learning_rate", 0.1, "a tenth of the rate: repair, no progress, is the aim"),
        kl_up(ev, 10.0, "the anchor dominates until the policy is back near the base"),
        scale(ev, "prompts_per_step", 2.0, "twice the prompts halve the gradient's variance"),
    )
    return (
        Option(
            changes=calm,
            reserve=steadying(ev),
            rationale="The phase lost what its start could do. Recover with a far lower rate and a stronger anchor.",
            expected="validation climbs back to at least the parent's own start",
            confidence=0.35,
        ),
        Option(
            changes=calmer,
            reserve=steadying(ev),
            rationale="Bolder repair: let the anchor lead, and learn slowly from larger batches.",
            expected="kl falls and validation recovers within the phase",
            confidence=0.25,
        ),
    )


def against_drift(ev: Evidence) -> Options:
    brake = (
        scale(ev, "learning_rate", 1 / 3, "the policy leaves its anchor faster than the reward repays"),
        kl_up(ev, 3.0, "a stronger KL term costs the drift"),
        scale(ev, "max_grad_norm", 0.5, "spikes of the k3 term reach the weights through single large gradients"),
        put("updates_per_batch", 1, "reusing a batch adds off-policy drift"),
    )
    harder = (
        scale(ev, "learning_rate", 0.1, "a tenth of the rate, the far end of what practitioners report"),
        kl_up(ev, 5.0, "the anchor must outweigh the drift"),
        scale(ev, "prompts_per_step", 1.5, "a cleaner gradient drifts less at random"),
    )
    return (
        Option(
            changes=brake,
            reserve=steadying(ev),
            rationale="KL runs away from the anchor: brake the rate and tighten the anchor together.",
            expected="kl window mean well below the parent's, reward no lower",
            confidence=0.6,
        ),
        Option(
            changes=harder,
            reserve=steadying(ev),
            rationale="Brake harder, in case a factor of three leaves the drift alive.",
            expected="kl stays flat; reward holds or rises slowly",
            confidence=0.4,
        ),
        _re_anchor(ev),
    )


def _re_anchor(ev: Evidence) -> Option:
    new_anchor = (
        scale(ev, "learning_rate", 0.5, "half the rate around the new anchor"),
        scale(ev, "prompts_per_step", 1.5, "a cleaner gradient drifts less at random"),
        scale(ev, "max_grad_norm", 0.5, "no single batch may move the weights far"),
    )
    return Option(
        changes=new_anchor,
        reserve=steadying(ev),
        kl_anchor="parent",
        rationale="The other bet: the drift was useful, so accept it and re-anchor at the parent.",
        expected="kl restarts near 0 and validation does not fall",
        confidence=0.35,
    )


def against_gradient_spikes(ev: Evidence) -> Options:
    clip = (
        scale(ev, "max_grad_norm", 0.3, "cap what one bad batch can do"),
        scale(ev, "learning_rate", 0.5, "spiky gradients need smaller steps"),
        scale(ev, "prompts_per_step", 1.5, "larger batches have fewer outliers"),
        put("updates_per_batch", 1, "importance ratios of reused batches feed spikes"),
    )
    average = (
        scale(ev, "prompts_per_step", 2.0, "twice the prompts halve the gradient's variance"),
        scale(ev, "group_size", 1.5, "steadier baselines within each group"),
        put("advantage_norm", "batch", "one scale for the batch: nearly equal groups are not blown up"),
    )
    return (
        Option(
            changes=clip,
            reserve=steadying(ev),
            rationale="Gradient norms spike: cap them, step smaller and average over more prompts.",
            expected="fewer grad_norm spikes and a smoother reward",
            confidence=0.5,
        ),
        Option(
            changes=average,
            reserve=steadying(ev),
            rationale="The other bet: keep the rate and remove the noise at its source.",
            expected="fewer grad_norm spikes at the same speed of learning",
            confidence=0.4,
        ),
    )


def against_entropy_explosion(ev: Evidence) -> Options:
    focus = (
        put("entropy_coef", 0.0, "no bonus on top of an entropy that climbs by itself"),
        shift(ev, "temperature", -0.15, "sample closer to what the policy believes"),
        scale(ev, "learning_rate", 0.5, "slower, while the policy finds its footing"),
        kl_up(ev, 2.0, "the anchor's entropy was lower"),
        put("clip_high", ev.hyper.clip_low, "a symmetric clip range favours rare tokens less"),
    )
    room = (
        scale(ev, "max_completion_tokens", 1.5, "cut answers carry no valid signal and feed the entropy"),
        put("mask_truncated", True, "learn from finished answers only"),
        kl_up(ev, 3.0, "a stronger anchor holds the distribution together"),
    )
    return (
        Option(
            changes=focus,
            reserve=steadying(ev),
            rationale="Entropy climbs while the reward does not: cool the sampling, slow down, tighten the anchor.",
            expected="entropy stops rising and the reward recovers",
            confidence=0.45,
        ),
        Option(
            changes=room,
            reserve=steadying(ev),
            rationale="The other bet: truncated answers without signal drive it; give room and mask them.",
            expected="entropy falls back while completions end by themselves",
            confidence=0.3,
        ),
    )


def against_short_answers(ev: Evidence) -> Options:
    loss = "dr_grpo" if ev.hyper.loss_type == "dapo" else "dapo"
    rebalance = (
        put("loss_type", loss, "another token weighting removes the pull towards short answers"),
        kl_up(ev, 2.0, "the anchor still writes full answers"),
        scale(ev, "learning_rate", 0.5, "slower, so that the shortcut pays less at once"),
    )
    explore = (
        shift(ev, "temperature", 0.15, "long answers must be sampled again before they can win"),
        scale(ev, "group_size", 1.5, "larger groups hold some long answers to compare with"),
        put("loss_type", loss, "another token weighting removes the pull towards short answers"),
    )
    return (
        Option(
            changes=rebalance,
            reserve=steadying(ev),
            rationale="Answers shrink without a gain: change the token weighting and hold on to the anchor.",
            expected="mean_length_tokens recovers and validation rises",
            confidence=0.4,
        ),
        Option(
            changes=explore,
            reserve=exploring(ev),
            rationale="The other bet: long answers vanished from the samples; bring them back by exploring.",
            expected="mean_length_tokens and reward_std rise first, then the reward",
            confidence=0.3,
        ),
    )


def against_truncation(ev: Evidence) -> Options:
    room = (
        scale(ev, "max_completion_tokens", 1.5, "answers must be able to end before the cap"),
        shift(ev, "temperature", -0.1, "rambling is partly a sampling effect"),
        scale(ev, "learning_rate", 0.7, "the length change rescales the loss: a little slower"),
    )
    mask = (
        put("mask_truncated", True, "a cut answer says nothing about its quality (contested: some saw no gain)"),
        scale(ev, "max_completion_tokens", 2.0, "twice the room"),
        scale(ev, "group_size", 1.5, "masked answers leave fewer to learn from"),
    )
    return (
        Option(
            changes=room,
            reserve=steadying(ev),
            rationale="Completions hit the cap and lose their reward: raise it, sample tighter, step a bit smaller.",
            expected="truncated_share below 0.1 and a higher reward from the first steps",
            confidence=0.65,
        ),
        Option(
            changes=mask,
            reserve=exploring(ev),
            rationale="Leave cut answers out of the loss and double the room.",
            expected="truncated_share falls and the gradient comes from finished answers",
            confidence=0.4,
        ),
    )
