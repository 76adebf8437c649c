"""Assignments: a whole agent to write, graded by a rubric with hidden tests.

What a student gets is made from the teacher's key: a file of key/ is a solution, and its starter is
the same file without what stands between the two marks. No answer of an exercise belongs here; see
rlbook/book/exercises.
"""
