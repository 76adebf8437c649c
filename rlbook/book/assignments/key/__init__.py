"""The teacher's key: a solution of each assignment. Nothing of it is written to a student's
folder."""
