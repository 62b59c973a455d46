"""A tokenizer of under 200 words: one token per fixed piece of prompt and answer, one per remaining character.

Every ASCII character has a token, so encoding loses nothing on ASCII text; anything else becomes [UNK].
"""

# mypy: disable-error-code="no-untyped-call,unused-ignore"

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
END = "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer(words: Sequence[str]) -> Any:
    """A `PreTrainedTokenizerFast` over `words` (longest match first) and every ASCII character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = sorted(set(words), key=lambda word: (-len(word), word))
    characters = [chr(code) for code in (9, 10, 13, *range(32, 127))]
    entries = dict.fromkeys([*SPECIAL, *pieces, *characters])
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(entries)}, unk_token="[UNK]"))
    split = Regex("|".join(map(re.escape, pieces)) + r"|[\s\S]")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(split, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        eos_token=END,
        additional_special_tokens=list(SPECIAL[3:]),
        padding_side="left",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
