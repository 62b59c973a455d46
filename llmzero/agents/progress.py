"""Answers where training works, stalls, or cannot be read: continue, change the phase, try cautiously."""

from __future__ import annotations

from llmzero.agents.evidence import Evidence, read
from llmzero.agents.moves import Option, can_move, kl_down, kl_up, put, scale, shift
from llmzero.agents.remedies import Options, exploring, steadying

MOSTLY_RIGHT = 0.8
"""Reward; below it a healthy run has more to win than to lose: it presses first and keeps its learning rate."""


def keep_going(ev: Evidence) -> Options:
    """A healthy run: with much left to win press, then small moves; near the top the small moves first."""
    if _early(ev):
        return (press(ev), refine(ev), polish(ev), widen(ev))
    return (refine(ev), press(ev), polish(ev), widen(ev))


def _early(ev: Evidence) -> bool:
    reward = read(ev, "reward")
    return reward is not None and reward.window_mean < MOSTLY_RIGHT


def bold(ev: Evidence) -> Options:
    """The same options for another start from the base: the bold ones first."""
    return (press(ev), widen(ev), polish(ev), refine(ev))


def refine(ev: Evidence) -> Option:
    """Small moves: less noise, a looser anchor, and finer steps once most answers are right."""
    pace = (
        scale(ev, "prompts_per_step", 1.5, "more prompts a step average out gradient noise")
        if _early(ev)
        else scale(ev, "learning_rate", 0.8, "slightly smaller steps as the policy improves")
    )
    return Option(
        changes=(
            pace,
            scale(ev, "group_size", 1.5, "steadier advantages (at more time a step)"),
            kl_down(ev, 0.5, "the base is a worse anchor the better the policy gets"),
        ),
        reserve=(
            scale(ev, "prompts_per_step", 1.5, "more prompts a step average out gradient noise"),
            put("lr_schedule", "linear", "a decaying rate ends the phase in small steps"),
        ),
        promise=2,
        rationale="No pathology in sight: go on with small moves only - less noise and a looser anchor.",
        expected="validation keeps rising, at a similar or slightly lower pace",
        confidence=0.6,
    )


def press(ev: Evidence) -> Option:
    """A larger step on a much larger batch; where the batch cannot grow, the larger step alone."""
    grown = (
        scale(ev, "group_size", 2.0, "twice the rollouts: cleaner advantages"),
        scale(ev, "prompts_per_step", 2.0, "twice the prompts: a cleaner gradient (up to 4x the time together)"),
    )
    loose = put("kl_coef", 0.0, "no anchor to hold it back")
    if not any(can_move(ev, change) for change in grown):
        return Option(
            changes=(scale(ev, "learning_rate", 1.7, "stable so far: a larger step"), loose),
            reserve=exploring(ev),
            promise=2,
            rationale="Training is stable, the batch as large as it may be, and much is left to win: a larger step.",
            expected="a faster rise at the same cost; kl and grad_norm will tell when it is too much",
            confidence=0.45,
        )
    return Option(
        changes=(*grown, scale(ev, "learning_rate", 1.5, "a cleaner gradient bears a larger step"), loose),
        reserve=exploring(ev),
        rationale="Training is stable, so press: much larger batches carry a larger step without an anchor.",
        expected="a clearly larger gain than the last phase's, at several times its cost",
        confidence=0.5,
    )


def polish(ev: Evidence) -> Option:
    """Fine, decaying steps."""
    return Option(
        changes=(
            scale(ev, "learning_rate", 0.4, "fine steps near what may be an optimum"),
            put("lr_schedule", "linear", "decaying to 0 averages out the last noise"),
            scale(ev, "prompts_per_step", 1.5, "a cleaner gradient for fine steps"),
        ),
        reserve=steadying(ev),
        rationale="The opposite bet: the phase moved fast, so settle it with fine, decaying steps.",
        expected="a small gain with little risk",
        confidence=0.45,
    )


def widen(ev: Evidence) -> Option:
    """Hotter sampling with larger groups."""
    return Option(
        changes=(
            shift(ev, "temperature", 0.2, "meet answers the policy no longer samples"),
            scale(ev, "group_size", 2.0, "twice the rollouts to compare them"),
            kl_down(ev, 0.3, "let the policy keep what it finds"),
        ),
        reserve=exploring(ev),
        rationale="Explore before the policy narrows: hotter sampling with larger groups and a loose anchor.",
        expected="a slower start, more headroom for the next phase",
        confidence=0.35,
    )


def change_phase(ev: Evidence) -> Options:
    """A plateau: a new anchor and larger groups, more speed, or wider exploration."""
    renew = Option(
        changes=(
            scale(ev, "group_size", 2.0, "larger groups find signal where small ones saw none"),
            scale(ev, "learning_rate", 1.5, "a larger step off the plateau, from the new anchor"),
            kl_down(ev, 0.5, "a looser anchor"),
        ),
        reserve=exploring(ev),
        kl_anchor="parent",
        rationale="The phase is used up: re-anchor at the parent, enlarge the groups and step a little larger.",
        expected="kl restarts near 0 and the reward moves again",
        confidence=0.5,
    )
    explore = Option(
        changes=(
            shift(ev, "temperature", 0.25, "the present samples hold nothing new"),
            scale(ev, "group_size", 1.5, "more rollouts per prompt"),
            scale(ev, "prompts_per_step", 1.5, "more prompts a step"),
            kl_down(ev, 0.3, "room to move"),
        ),
        reserve=exploring(ev),
        rationale="The other bet: the plateau is one of exploration, not of speed.",
        expected="entropy and reward_std rise first, validation later",
        confidence=0.4,
    )
    settle_down = Option(
        changes=(
            scale(ev, "learning_rate", 0.4, "the noise of large steps may be the plateau"),
            put("lr_schedule", "linear", "decaying to 0 averages out the last noise"),
            scale(ev, "prompts_per_step", 2.0, "twice the prompts halve the gradient's variance"),
        ),
        reserve=steadying(ev),
        rationale="The opposite bet: steps are too noisy to climb further, so take finer ones on larger batches.",
        expected="a small but steady gain",
        confidence=0.4,
    )
    return (renew, explore, settle_down)


def speed_up(ev: Evidence) -> Options:
    """Slow but sound progress far from the top."""
    faster = Option(
        changes=(
            scale(ev, "learning_rate", 2.0, "sound but slow: a larger step"),
            scale(ev, "group_size", 1.5, "cleaner advantages carry it"),
            kl_down(ev, 0.5, "less pull back to the anchor"),
        ),
        reserve=exploring(ev),
        rationale="Progress is sound but slow and far from the top: double the step with cleaner advantages.",
        expected="a gain beyond noise within the phase",
        confidence=0.45,
    )
    return (faster, polish(ev), widen(ev))


def distrust_reward(ev: Evidence) -> Options:
    """Training reward up, validation not."""
    anchor = Option(
        changes=(
            kl_up(ev, 3.0, "shortcuts lie far from the base"),
            scale(ev, "learning_rate", 0.5, "slower, so that validation can follow"),
            scale(ev, "prompts_per_step", 1.5, "a shortcut must pay on more prompts"),
        ),
        reserve=steadying(ev),
        rationale="The training reward climbs and validation does not: anchor, slow down, see more prompts.",
        expected="a slower training reward and a validation score that follows it",
        confidence=0.45,
    )
    vary = Option(
        changes=(
            shift(ev, "temperature", 0.2, "a shortcut found by sharpening loses its lead"),
            scale(ev, "group_size", 1.5, "honest answers must be in the group to win"),
            scale(ev, "prompts_per_step", 2.0, "twice the prompts a step"),
        ),
        reserve=exploring(ev),
        rationale="The other bet: the policy only sharpens what it samples; vary what it sees.",
        expected="a lower training reward, a higher validation score",
        confidence=0.3,
    )
    return (anchor, vary)


def probe(ev: Evidence) -> Options:
    """Nothing can be read: a cautious, steadier variation."""
    return (
        Option(
            changes=(
                scale(ev, "learning_rate", 0.7, "nothing is known of the parent's stability"),
                scale(ev, "group_size", 1.5, "larger groups are rarely wrong, only slower"),
                scale(ev, "prompts_per_step", 1.5, "and so are larger batches"),
            ),
            reserve=steadying(ev),
            rationale="There is nothing to diagnose: a cautious variation towards less noise.",
            expected="a phase that can be read",
            confidence=0.3,
        ),
        Option(
            changes=(
                scale(ev, "learning_rate", 1.5, "the other way"),
                scale(ev, "group_size", 2.0, "with twice the rollouts"),
                kl_down(ev, 0.5, "and a looser anchor"),
            ),
            reserve=exploring(ev),
            rationale="The other bet: step larger with larger groups.",
            expected="a phase that can be read",
            confidence=0.25,
        ),
    )
