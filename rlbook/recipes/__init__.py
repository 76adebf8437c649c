"""Work that takes several runs: post-training in stages, from a recipe's file, and the search for
hyper-parameters (`rlbook.recipes.tuning.tune`)."""
