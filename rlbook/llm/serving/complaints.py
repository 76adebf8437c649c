"""Errors between a client and a server of OpenAI's protocol, in a sentence."""

from __future__ import annotations


def server_complaint(error: Exception, where: str, *, timeout: float | None = None) -> str:
    """The error of the server, or of the connection to it.

    Args:
        error: what OpenAI's client raised, or what its answer could not be used for.
        where: what the sentence begins with, such as "the server at http://127.0.0.1:8000/v1".
        timeout: seconds that an answer may take, where the sentence says it.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        reason = f"{where} refuses: {body.get('message') or error.message}"[:300]
        incomplete = isinstance(error, openai.NotFoundError) and "/v1" not in where
        return reason + "; the addresses of most servers end in /v1" * incomplete
    if isinstance(error, openai.APITimeoutError) and timeout is not None:
        return f"{where} does not answer within {timeout:g} seconds"
    if isinstance(error, openai.APIConnectionError):
        return f"{where} cannot be reached"
    return f"{where} gives an unusable answer: {error}"[:300]
