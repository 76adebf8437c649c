"""Exercises of the book: functions to write, checked against the library's, with a hint for each
known mistake."""
