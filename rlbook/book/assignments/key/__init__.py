"""The teacher's key: a solution of each assignment. No part of it is written to a student's
folder."""
