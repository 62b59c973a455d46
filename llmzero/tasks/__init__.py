"""Tasks: data, prompts and rewards. One folder a task; `base` holds what they share."""
