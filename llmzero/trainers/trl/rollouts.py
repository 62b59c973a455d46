"""Multi-turn rollouts for TRL's GRPOTrainer: its `rollout_func`, over the same episodes that evaluations play."""
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call,unused-ignore"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmzero.domain.examples import Example
from llmzero.ports import MultiTurnTask
from llmzero.trainers.trl.chat import Chat
from llmzero.trainers.trl.episodes import play
from llmzero.trainers.trl.generation import turns
from llmzero.trainers.trl.weights import policy_of

EXAMPLE = "example_id"
"""Key of a prompt's first message: TRL hands a rollout function the prompts and nothing else of their rows."""


def rollout_function(
    task: MultiTurnTask, examples: Mapping[str, Example]
) -> Callable[[Sequence[Sequence[Mapping[str, Any]]], Any], dict[str, Any]]:
    """For `GRPOTrainer(rollout_func=...)`; `examples` by id. Sampling is the trainer's own (temperature, top_p).

    `env_mask` keeps what the environment said out of the loss; `episode` reaches the reward function.
    """

    def roll_out(prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: Any) -> dict[str, Any]:
        from trl.models.utils import unwrap_model_for_generation

        chosen = [examples[prompt[0][EXAMPLE]] for prompt in prompts]
        config, cap = trainer.generation_config, trainer.args.max_completion_length
        with unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
        ) as model:
            policy = policy_of(model, trainer.processing_class)

            def sample(contexts: Sequence[list[int]], most_tokens: int, stop: Sequence[str]) -> list[list[int]]:
                return turns(policy, contexts, config, most_tokens=most_tokens, stop=stop)

            episodes = play(task, chosen, Chat.of(policy), sample, most_tokens=cap)
        return {
            "prompt_ids": [episode.prompt_ids for episode in episodes],
            "completion_ids": [episode.ids for episode in episodes],
            "logprobs": None,
            "env_mask": [episode.mask for episode in episodes],
            "episode": episodes,
        }

    return roll_out
