"""The signs of each pathology: tests on evidence that answer with evidence lines, or with () where it is absent.

Thresholds are relative wherever the quantity has a scale of its own, so that one rule serves a sub-million-parameter
base (lr 1e-4, KL up to 0.5 nats) and a real LLM (lr 1e-6, KL 0.001). Only the one marked *documented* comes from
a source; the others are working hypotheses, and the search tests what is built on them.
"""

from __future__ import annotations

from llmzero.agents.evidence import (
    Evidence,
    base_entropy,
    gain,
    gained,
    noise,
    peak_and_end,
    read,
    rise,
    rising,
)

COLLAPSE_SIGMAS = 2.0
"""Standard errors of the score difference."""
COLLAPSE_MARGIN = 0.03
"""Score; the least fall below the phase's own start that is called a collapse."""
KL_HIGH = 0.15
"""Nats per token; a level that asks for a look."""
KL_RUNAWAY = 0.5
"""Nats per token; too far from the anchor whatever the reward does."""
KL_GROWTH = 3.0
"""Window mean over first value, within the phase."""
KL_TINY = 0.003
"""Nats per token; the policy has hardly moved from its anchor."""
KL_COEF_STRONG = 0.1
"""Share of the space's bound on kl_coef."""
GRAD_SPIKE_SHARE = 0.05
"""Share of steps whose gradient norm is a spike (see statistics.count_spikes), at least GRAD_SPIKES of them."""
GRAD_SPIKES = 3
"""Steps."""
ENTROPY_COLLAPSED = 0.4
"""Window mean over the entropy at the base."""
ENTROPY_EXPLODED = 1.5
"""Window mean over first value, within the phase."""
ENTROPY_RISE = 0.1
"""Nats; an explosion adds at least this much."""
ENTROPY_TOP = 1.0
"""Nats; documented: a rise is fine "as long as it is < 1" (rllm issue 116)."""
ENTROPY_STILL = 0.1
"""Share of the level; less movement counts as unchanged."""
LENGTH_COLLAPSED = 0.5
"""Window mean over first value of the mean completion length."""
TRUNCATED = 0.1
"""Share of completions cut at the cap; documented: above 0.1 is too much (verl best practices)."""
CLIPPED = 0.1
"""Share of tokens outside the clip range; no authoritative number is known."""
ZERO_ADVANTAGE = 0.5
"""Share of groups without any advantage."""
FEW_DIFFERENCES = 0.3
"""Share of groups without any advantage that makes narrow sampling suspicious."""
LOW_SPREAD = 0.1
"""Standard deviation of the reward over a batch, 0..0.5 for rewards of 0 and 1."""
REWARD_FLAT = 0.03
"""Reward; a smaller fitted rise over the phase counts as none."""
HEADROOM = 0.8
"""Reward; below it a slow rise is a matter of speed, above it of what is left."""
REWARD_CLIMBS = 0.1
"""Reward; a rise the validation score should show."""
EASY = 0.5
"""Reward; dead groups above it are mostly all right, below it all wrong."""
OVERFIT_SIGMAS = 2.0
"""Standard errors between the validation curve's peak and its end."""
OVERFIT_MARGIN = 0.03
"""Score; and at least this much."""

Lines = tuple[str, ...]


def collapse(ev: Evidence) -> Lines:
    change = gain(ev)
    if change is None or change >= -max(COLLAPSE_MARGIN, COLLAPSE_SIGMAS * noise(ev)):
        return ()
    return (f"validation {ev.node.score:.3f}, {change:+.3f} against its own start (standard error {noise(ev):.3f})",)


def kl_spike(ev: Evidence) -> Lines:
    kl = read(ev, "kl")
    if kl is None:
        return ()
    grown = kl.window_mean > KL_GROWTH * max(kl.first, KL_TINY)
    spiky = kl.spikes >= 2 and kl.window_mean > KL_HIGH
    high = kl.window_mean > KL_HIGH and grown and not rising(ev, at_least=REWARD_FLAT)
    if not (kl.window_mean > KL_RUNAWAY or high or spiky):
        return ()
    ratio = f", {kl.window_mean / kl.first:.3g}x its first value" if kl.first > 1e-6 else ", from about 0"
    spikes = (f"kl {_steps(kl.spikes)} of spikes, highest {kl.high:.3g} nats",) if kl.spikes else ()
    return (f"kl window mean {kl.window_mean:.3g} nats per token{ratio}", *spikes, *_reward(ev))


def gradient_spikes(ev: Evidence) -> Lines:
    grad = read(ev, "grad_norm")
    dead = read(ev, "zero_std_share")
    if grad is None or grad.spikes < max(GRAD_SPIKES, GRAD_SPIKE_SHARE * grad.count):
        return ()
    if dead is not None and dead.mean >= ZERO_ADVANTAGE:
        return ()  # steps without any advantage have no gradient: the living ones only look like spikes
    return (
        f"grad_norm {_steps(grad.spikes)} of spikes in {grad.count}, highest {grad.high:.3g}, mean {grad.mean:.3g}",
    )


def entropy_explosion(ev: Evidence) -> Lines:
    entropy = read(ev, "entropy")
    if entropy is None:
        return ()
    grown = entropy.window_mean >= ENTROPY_EXPLODED * entropy.first
    far = entropy.window_mean - entropy.first >= ENTROPY_RISE
    harmful = entropy.window_mean > ENTROPY_TOP or not rising(ev, at_least=REWARD_FLAT)
    return (_from_to("entropy", entropy.first, entropy.window_mean, "nats"), *_reward(ev)) * (grown and far and harmful)


def length_collapse(ev: Evidence) -> Lines:
    length = read(ev, "mean_length_tokens")
    if length is None or length.window_mean > LENGTH_COLLAPSED * length.first or gained(ev):
        return ()
    return (_from_to("mean_length_tokens", length.first, length.window_mean, "tokens"), *_gain(ev))


def truncation(ev: Evidence) -> Lines:
    cut = read(ev, "truncated_share")
    if cut is None or cut.window_mean <= TRUNCATED:
        return ()
    return (f"truncated_share window mean {cut.window_mean:.3g} at a cap of {ev.hyper.max_completion_tokens} tokens",)


def entropy_collapse(ev: Evidence) -> Lines:
    entropy, base = read(ev, "entropy"), base_entropy(ev)
    if entropy is None or not base or entropy.window_mean > ENTROPY_COLLAPSED * base or gained(ev):
        return ()
    share = f"{entropy.window_mean / base:.2g} of {base:.3g} at the base"
    return (f"entropy window mean {entropy.window_mean:.3g} nats, {share}", *_dead(ev), *_gain(ev))


def clip_saturation(ev: Evidence) -> Lines:
    clip = read(ev, "clip_ratio")
    if clip is None or clip.window_mean <= CLIPPED:
        return ()
    return (f"clip_ratio window mean {clip.window_mean:.3g} at {ev.hyper.updates_per_batch} updates per batch",)


def zero_advantage_hard(ev: Evidence) -> Lines:
    reward = read(ev, "reward")
    return _dead_groups(ev) if reward and reward.window_mean < EASY else ()


def zero_advantage_easy(ev: Evidence) -> Lines:
    reward = read(ev, "reward")
    return _dead_groups(ev) if reward and reward.window_mean >= EASY else ()


def overfitting(ev: Evidence) -> Lines:
    points = peak_and_end(ev)
    if points is None or not rising(ev, at_least=REWARD_FLAT):
        return ()
    peak, end = points
    fall = peak.score - end.score
    if fall <= max(OVERFIT_MARGIN, OVERFIT_SIGMAS * (peak.se**2 + end.se**2) ** 0.5):
        return ()
    return (f"validation fell from {peak.score:.3f} at step {peak.step} to {end.score:.3f}", *_reward(ev))


def train_val_gap(ev: Evidence) -> Lines:
    if gained(ev) is not False or not rising(ev, at_least=REWARD_CLIMBS):
        return ()
    return (*_reward(ev), *_gain(ev))


def over_regularised(ev: Evidence) -> Lines:
    parameter = ev.parameter("kl_coef")
    if parameter is None or ev.hyper.kl_coef < KL_COEF_STRONG * parameter.high or not _stuck(ev):
        return ()
    return (f"kl_coef {ev.hyper.kl_coef:.3g}, {ev.hyper.kl_coef / parameter.high:.2g} of its bound", *_stuck(ev))


def too_timid(ev: Evidence) -> Lines:
    return _stuck(ev)


def under_exploration(ev: Evidence) -> Lines:
    spread, hyper = read(ev, "reward_std"), ev.hyper
    same = _dead(ev, at_least=FEW_DIFFERENCES)
    alike = (f"reward_std window mean {spread.window_mean:.3g}",) if spread and spread.window_mean < LOW_SPREAD else ()
    narrow = hyper.temperature < 0.95 or hyper.top_p < 0.95 or hyper.group_size < 8
    if not (same or alike) or not narrow or gained(ev) or rising(ev, at_least=REWARD_FLAT):
        return ()
    line = f"temperature {hyper.temperature:g}, top_p {hyper.top_p:g}, {hyper.group_size} rollouts per prompt"
    return (*same, *alike, line, *_gain(ev))


def reward_plateau(ev: Evidence) -> Lines:
    if rise(ev, "reward") is None or rising(ev, at_least=REWARD_FLAT) or gained(ev):
        return ()
    return (*_reward(ev), *_gain(ev))


def slow_progress(ev: Evidence) -> Lines:
    reward = read(ev, "reward")
    if reward is None or reward.window_mean >= HEADROOM or gained(ev) is not False:
        return ()
    slow = rising(ev, at_least=REWARD_FLAT) and not rising(ev, at_least=REWARD_CLIMBS)
    return (*_reward(ev), *_gain(ev)) if slow else ()


def unmeasured(ev: Evidence) -> Lines:
    if rise(ev, "reward") is not None or gain(ev) is not None:
        return ()
    return ("neither a training reward nor a score change was measured",)


def healthy(ev: Evidence) -> Lines:
    return (*_reward(ev), *_gain(ev)) or ("no sign of a pathology",)


def _stuck(ev: Evidence) -> Lines:
    """Evidence that the policy has hardly moved: entropy still, KL tiny, reward (nearly) still.

    A tiny KL leaves room for larger steps even where the reward creeps up. Without a KL to read, the reward must stand
    still and the entropy be the base's: late in a good path it may just as well be finished.
    """
    change, entropy, kl, base = rise(ev, "reward"), read(ev, "entropy"), read(ev, "kl"), base_entropy(ev)
    drift = rise(ev, "entropy")  # fitted: single steps are noise
    if change is None or entropy is None or base is None or drift is None or not _still(drift, entropy.mean):
        return ()
    if kl is None and (abs(change) >= REWARD_FLAT or gained(ev) or not _still(entropy.window_mean - base, base)):
        return ()
    if kl is not None and (kl.window_mean > KL_TINY or not -REWARD_FLAT < change < REWARD_CLIMBS):
        return ()
    anchor = (f"kl window mean {kl.window_mean:.3g} nats per token",) if kl else ()
    return (*_reward(ev), _from_to("entropy", entropy.first, entropy.window_mean, "nats"), *anchor)


def _still(change: float, level: float) -> bool:
    return abs(change) <= ENTROPY_STILL * abs(level)


def _dead_groups(ev: Evidence) -> Lines:
    dead = _dead(ev, at_least=ZERO_ADVANTAGE)
    return dead and (*dead, *_reward(ev))


def _dead(ev: Evidence, at_least: float = 0.0) -> Lines:
    dead = read(ev, "zero_std_share")
    if dead is None or dead.window_mean < at_least:
        return ()
    return (f"zero_std_share window mean {dead.window_mean:.3g}: so many groups teach nothing",)


def _reward(ev: Evidence) -> Lines:
    reward, change = read(ev, "reward"), rise(ev, "reward")
    if reward is None or change is None:
        return ()
    return (f"training reward {reward.first:.3g} -> {reward.window_mean:.3g} (fitted change {change:+.3f})",)


def _gain(ev: Evidence) -> Lines:
    change = gain(ev)
    if change is None:
        return ()
    return (f"validation {ev.node.score:.3f}, {change:+.3f} against its start (standard error {noise(ev):.3f})",)


def _from_to(name: str, first: float, last: float, unit: str) -> str:
    return f"{name} {first:.3g} -> {last:.3g} {unit}"


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"
