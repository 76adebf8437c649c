"""Settings of published recipes by name, for `rlbook train --preset NAME` and
`rlbook.train(preset=NAME)`: one YAML file each, in the format of a run's config.yaml.

What an algorithm needs on one environment of the book stands in `rlbook/algorithms/*/presets`.
"""
