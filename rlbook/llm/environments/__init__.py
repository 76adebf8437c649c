"""Writing as a Markov decision process: token and chat environments, and where their examples
come from."""
