"""Jobs for other libraries: a run's method, rows, rewards and model as files for TRL, verl or
LLaMA-Factory. What is trained here, and how, belongs elsewhere."""
