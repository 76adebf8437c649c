"""Jobs for other libraries: a run's method, rows, rewards and model as files for TRL, verl or
LLaMA-Factory. Training itself does not belong here."""
