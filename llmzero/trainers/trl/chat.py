"""Conversations as tokens: an opening, and what stands between two turns of the model."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmzero.domain.errors import PhaseError
from llmzero.domain.examples import Message
from llmzero.trainers.trl.weights import Policy

_MARK, _PROBE = "one turn of the model", "what the environment said"
"""Stand for the model's reply while the template is rendered around it, and for a message the template must show."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A policy's tokenizer and chat template. Replies stay the tokens that were sampled; only the rest is rendered."""

    tokenizer: Any
    eos_ids: tuple[int, ...]
    context_tokens: int

    @classmethod
    def of(cls, policy: Policy) -> Chat:
        """`context_tokens` is what the model declares; without a declaration, no bound."""
        declared = getattr(policy.model.config, "max_position_embeddings", None)
        return cls(policy.tokenizer, policy.eos_ids, int(declared or 1 << 30))

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Token ids of the messages an episode begins with, ready for the model's first turn."""
        return self._ids(self._rendered(messages, tools))

    def between(self, messages: Sequence[Message], *, ended: bool) -> list[int]:
        """Token ids after a reply and up to the model's next turn: the end of the reply, `messages`, a new turn.

        `ended`: the model wrote the end token itself. A template without the role `tool` is given `user` instead.
        """
        ids = self._ids(self._after_mark(messages))
        return ids[1:] if ended and ids and ids[0] in self.eos_ids else ids

    def reply(self, ids: Sequence[int], stop: Sequence[str]) -> tuple[str, bool]:
        """The text of a turn, up to its first stop string, and whether the turn is complete."""
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        ends = [text.find(each) + len(each) for each in stop if each in text]
        if ends:
            return text[: min(ends)], True
        return text, bool(ids) and ids[-1] in self.eos_ids

    def fitting(self, messages: Sequence[Message], most_tokens: int) -> tuple[Message, ...]:
        """The messages without the template's control tokens, cut at `most_tokens` in all."""
        kept: list[Message] = []
        for message in messages:
            content = self._plain(message["content"])
            ids = self._ids(content)
            if len(ids) > most_tokens:
                content = self._plain(str(self.tokenizer.decode(ids[:most_tokens])))
            most_tokens = max(0, most_tokens - len(ids))
            kept.append({"role": message["role"], "content": content})
        return tuple(kept)

    def _after_mark(self, messages: Sequence[Message]) -> str:
        from jinja2 import TemplateError

        reply: tuple[Message, ...] = ({"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK})
        as_user: list[Message] = [{"role": "user", "content": m["content"]} for m in messages]
        for said in (messages, as_user):
            probes: list[Message] = [{"role": m["role"], "content": _PROBE} for m in said]
            try:
                if self._rendered((*reply, *probes)).partition(_MARK)[2].count(_PROBE) == len(probes):
                    return self._rendered((*reply, *said)).partition(_MARK)[2]
            except TemplateError:
                continue
        raise PhaseError(
            "bad_config",
            "the model's chat template shows no message after an assistant turn: multi-turn tasks need one that does",
        )

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        chat = [dict(message) for message in messages]
        listed = [dict(tool) for tool in tools] or None
        text = self.tokenizer.apply_chat_template(chat, tools=listed, add_generation_prompt=True, tokenize=False)
        return str(text)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _plain(self, text: str) -> str:
        """Without control tokens, so that nothing a tool returns can open or close a turn."""
        added = self.tokenizer.added_tokens_decoder.values()
        control = {*self.tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
        while found := [token for token in control if token and token in text]:
            for token in found:
                text = text.replace(token, "")
        return text
