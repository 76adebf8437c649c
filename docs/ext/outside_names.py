"""Names in signatures that the API does not describe, such as Tensor and ValueError, become plain
text at once: Sphinx compares each with the end of every name that there is, which took a tenth of
the build.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import ReferencesResolver, SphinxPostTransform
from sphinx.util.nodes import find_pending_xref_condition


class OutsideNames(SphinxPostTransform):
    """Puts the text of such a reference in its place, as Sphinx would in the end."""

    default_priority = ReferencesResolver.default_priority - 1

    def run(self, **options: Any) -> None:
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node["refdomain"] == "py" and last_part(node["reftarget"]) not in described(
                self.env
            ):
                text = find_pending_xref_condition(node, "*") or node
                node.replace_self(text.children)


@cache
def described(env: BuildEnvironment) -> set[str]:
    """The last parts of all names that have a place to lead to."""
    return set(map(last_part, env.domaindata["py"]["objects"]))


def last_part(name: str) -> str:
    return name.removesuffix("()").rpartition(".")[2]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(OutsideNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
