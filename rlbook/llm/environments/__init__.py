"""Text generation as a Markov decision process: token and chat environments, and the sources of
their examples."""
