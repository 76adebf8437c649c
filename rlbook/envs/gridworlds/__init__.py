"""Mazes and other gridworlds."""
