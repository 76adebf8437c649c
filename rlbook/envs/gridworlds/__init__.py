"""Mazes and other worlds on a grid."""
