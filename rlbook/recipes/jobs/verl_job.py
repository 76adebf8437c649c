"""Jobs for verl."""

VERL = {}
