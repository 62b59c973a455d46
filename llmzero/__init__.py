"""LLMZero: search GRPO training strategies, not single hyperparameters."""

__version__ = "0.1.0"

__all__ = ["__version__"]
