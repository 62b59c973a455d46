"""Rollouts of multi-turn tasks, token by token: training and evaluation play them by the same code.

What the model wrote has mask 1 and is trained on; what the environment said, and what the chat template puts around it,
has mask 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmzero.domain.examples import Example, Message, Transcript
from llmzero.ports import Environment, MultiTurnTask
from llmzero.trainers.trl.chat import Chat
from llmzero.trainers.trl.rewards import FAILURES

Sample = Callable[[Sequence[list[int]], int, Sequence[str]], list[list[int]]]
"""(contexts, most new tokens, stop strings) -> one turn each, cut after its end."""


@dataclass(slots=True, kw_only=True)
class Episode:
    """One rollout. `ids` and `mask` begin after `prompt_ids`; `messages` after the opening.

    `cut`: the token cap or the model's context ended it within a turn. `failed`: the environment raised.
    """

    example: Example
    environment: Environment
    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    over: bool = False
    cut: bool = False
    failed: bool = False

    @property
    def written_tokens(self) -> int:
        """What the model wrote, and what the cap counts."""
        return sum(self.mask)

    @property
    def transcript(self) -> Transcript:
        return Transcript(tuple(self.messages))

    def add(self, ids: Sequence[int], *, written: bool) -> None:
        self.ids += ids
        self.mask += [int(written)] * len(ids)


def play(
    task: MultiTurnTask, examples: Sequence[Example], chat: Chat, sample: Sample, *, most_tokens: int
) -> list[Episode]:
    """One episode for each example (repeated: a group), of at most `most_tokens` written by the model.

    Turns are sampled for all running episodes together, in a fixed order.
    """
    episodes = [_begun(task, example, chat) for example in examples]
    while running := [episode for episode in episodes if not episode.over]:
        groups: dict[tuple[str, ...], list[Episode]] = defaultdict(list)
        for episode in running:
            groups[tuple(episode.environment.stop)].append(episode)
        for stop, group in groups.items():
            room = [_room(episode, chat, most_tokens) for episode in group]
            replies = sample([[*e.prompt_ids, *e.ids] for e in group], max(room), stop)
            for episode, ids, most in zip(group, replies, room, strict=True):
                _turn(episode, ids[:most], chat, stop)
                episode.over = episode.over or _no_room(episode, chat, most_tokens)
    return episodes


def _begun(task: MultiTurnTask, example: Example, chat: Chat) -> Episode:
    environment = task.environment(example)
    episode = Episode(
        example=example,
        environment=environment,
        prompt_ids=chat.opening(environment.reset(), environment.tools),
    )
    if len(episode.prompt_ids) >= chat.context_tokens:
        episode.over = episode.cut = True
        _end(episode, chat)
    return episode


def _room(episode: Episode, chat: Chat, most_tokens: int) -> int:
    """Tokens the next turn may have: what the cap and the model's context leave."""
    used = len(episode.prompt_ids) + len(episode.ids)
    return min(most_tokens - episode.written_tokens, chat.context_tokens - used)


def _no_room(episode: Episode, chat: Chat, most_tokens: int) -> bool:
    episode.cut = episode.cut or (not episode.over and _room(episode, chat, most_tokens) < 1)
    return episode.cut


def _turn(episode: Episode, ids: list[int], chat: Chat, stop: Sequence[str]) -> None:
    """One reply of the model and the environment's answer to it."""
    text, complete = chat.reply(ids, stop)
    episode.add(ids, written=True)
    episode.messages.append({"role": "assistant", "content": text})
    episode.turns += 1
    if not complete:
        episode.over = episode.cut = True
        return
    environment = episode.environment
    try:
        seen = environment.step(text)
        shown = chat.fitting(seen.messages, environment.max_observation_tokens)
        episode.counts.update(seen.counts)
    except FAILURES:
        episode.failed = True
        _end(episode, chat)
        return
    if seen.done or not shown or episode.turns >= environment.max_turns:
        _end(episode, chat)
        return
    episode.messages += shown
    episode.add(chat.between(shown, ended=ids[-1] in chat.eos_ids), written=False)


def _end(episode: Episode, chat: Chat) -> None:
    """Close the last turn where the model did not: trainers tell whole completions by their end token."""
    episode.over = True
    if not episode.ids or episode.ids[-1] not in chat.eos_ids:
        episode.add(chat.eos_ids[:1], written=False)
