"""Prediction: learn the values of a policy that is given."""
