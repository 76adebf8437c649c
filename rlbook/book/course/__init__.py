"""The course of twelve weeks, and what its notebooks import."""
