"""From a model to texts: the KV cache, how a token is chosen, whole completions, the best of n."""
