"""The `trl` trainer: one phase is one run of TRL's GRPOTrainer; the same code on a CPU and on a GPU."""

from llmzero.trainers.trl.trainer import TrlTrainer

__all__ = ["TrlTrainer"]
