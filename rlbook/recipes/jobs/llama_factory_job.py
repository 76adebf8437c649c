"""Jobs for LLaMA-Factory."""

LLAMA_FACTORY = {}
