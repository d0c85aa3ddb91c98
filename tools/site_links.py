"""Hook of mkdocs: what pages say of files outside of docs/ is shown by name, for the site does not have them."""

import re
from pathlib import PurePosixPath
from typing import Any

OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\((\.\./[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replaces links that leave docs/ by their texts."""
    depth = len(PurePosixPath(page.file.src_uri).parts) - 1

    def shown(link: re.Match[str]) -> str:
        is_image, text, target, _anchor = link.groups()
        is_inside = PurePosixPath(target).parts.count("..") <= depth
        if is_inside:
            return link[0]
        return "" if is_image else f"{text} (`{target.lstrip('./')}`)"

    return OUTSIDE.sub(shown, markdown)
