"""Exercises of the book: a function to write, which is checked against the library's, and a hint
where the mistake is a known one."""
