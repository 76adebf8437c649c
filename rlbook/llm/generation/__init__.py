"""Text generation: the KV cache, token sampling, complete completions, best-of-n."""
