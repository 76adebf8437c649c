"""The book's equations, one pure function each. Nothing here knows an agent, an environment or a random number."""
