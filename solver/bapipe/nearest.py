"""Which known name was probably meant by one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The same name in other letters' case, else one that starts as `name` does, else one spelled much alike.

    >>> nearest("V100", ["A100-40G", "V100-16G"])
    'V100-16G'
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    wanted = name.casefold()
    if wanted in folded:
        return folded[wanted]
    longer = [candidate for candidate in folded if wanted and candidate.startswith(wanted)]
    near = longer[:1] or difflib.get_close_matches(wanted, folded, n=1)
    return folded[near[0]] if near else None
