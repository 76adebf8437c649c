"""Tasks for lm-evaluation-harness (`lm_eval --include_path THIS_FOLDER`): the held-out prompts of a
token environment, answered in full and as multiple choice.

`held_out_rows.py` makes the rows; the YAML files say what is asked and how it is scored.
"""
