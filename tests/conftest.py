"""Stands here so that test modules can import the helpers next to it (`trainer_kit`, ...)."""
