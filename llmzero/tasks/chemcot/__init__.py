"""ChemCoTBench (Li et al. 2025, arXiv:2505.21318): molecule editing and understanding, and an offline miniature."""

from llmzero.tasks.chemcot.task import ChemCoT, chemcot

__all__ = ["ChemCoT", "chemcot"]
