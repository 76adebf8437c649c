"""How the site is built: Markdown through MyST, notebooks with the outputs they hold, everything that
code can say read from the code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# in a notebook such a bar is a script from the network
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "ext")]

import notebook_outputs  # noqa: E402

import rlbook  # noqa: E402

project = "rlbook"
author = "The rlbook authors"
copyright = "The rlbook authors, MIT licence"
version = release = rlbook.__version__

extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "formulas",
    "animations",
    "agent_films",
    "api_pages",
    "beside",
    "book_directives",
    "dark_pictures",
    "notebook_pages",
    "terms",
    "theorems",
    "diagrams",
    "playable",
    "museum",
    "short_navigation",
    "small_frames",
    "outside_names",
    "wrapped_code",
    "stacked_tables",
    "descriptions",
    "one_file",
]
exclude_patterns = ["_build", "ext", "katex", "jupyter_execute", "**.ipynb_checkpoints"]
# `seed` or `Recipe` in a signature may be one of several; the reader sees which
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["dollarmath", "amsmath", "fieldlist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 3
html_math_renderer = "katex"  # drawn while the site is built: no script, no network

os.environ["RLBOOK_QUIET"] = "1"  # a bar that moved is not part of a page
nb_execution_mode = "cache"
# a notebook is executed if its code has changed since it was stored; all of them are with
# `-D nb_execution_excludepatterns=none`
nb_execution_excludepatterns = [
    f"notebooks/{path.name}"
    for path in notebook_outputs.NOTEBOOKS
    if notebook_outputs.is_current(notebook_outputs.read(path))
]
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # the default loads two scripts from the network

python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False  # the page is the module's
toc_object_entries = False  # the API pages list their names themselves

copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = "rlbook"
html_favicon = "static/favicon.svg"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = [("frames.js", {"defer": "defer"})]
html_search_scorer = str(HERE / "ext" / "search_scorer.js")
html_show_sphinx = False
# the page of terms is the book's index, and the search finds names
html_use_index = html_domain_indices = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

# of `make epub` and `make pdf`, which docs/ext/one_file.py explains
epub_title = "Reinforcement learning, a book that runs"
epub_basename = "rlbook"
epub_show_urls = "no"
epub_use_index = False
epub_exclude_files = [
    "_static/frames.js",
    "_static/copybutton.js",
    "_static/clipboard.min.js",
    "_static/book.css",
    "_static/paper.css",
]
