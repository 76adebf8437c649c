"""Post-training in stages: what a recipe's file says, and how its stages are run and measured."""
