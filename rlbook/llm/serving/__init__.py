"""A language model served over OpenAI's HTTP protocol, and clients of such a server.

The engine generates for many requests in one batch and knows nothing of HTTP; the application turns
requests into sequences for it and their tokens into answers; the clients, `synthesis` and
`sampler`, speak to any server of the protocol. What a command prints belongs to `rlbook.cli`.
"""
