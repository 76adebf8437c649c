"""The course of twelve weeks, and the module that its notebooks import."""
