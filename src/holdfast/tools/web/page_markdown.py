"""Converts a web page to Markdown, or to plain text, for a model.

The work is done by html-to-markdown, in a process of its own (`page_program.py`): no turn waits for a page, and a page
that takes too long is ended. A page whose text cannot be converted is an error; before its limits, the library
gives nothing for one that is nested too deeply, and nothing is no page.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast import limits

PageStyle: TypeAlias = Literal["markdown", "plain"]

INSTALL = "web pages need an extra that is not installed: pip install 'holdfast[fetch]'"

_PROGRAM = str(Path(__file__).with_name("page_program.py"))
_WHY = {3: "its text lies too deep; ask for it as html", 4: INSTALL}
"""By the exit codes of the program."""


class PageUnreadable(Exception):
    """A page could not be converted; the words say why."""


async def page_markdown(html: str, style: PageStyle = "markdown") -> str:
    """The readable text of a page; empty if it has none. Raises PageUnreadable."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", _PROGRAM, style),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(limits.web_conversion_s):
            text, _ = await process.communicate(html.encode(errors="replace"))
    except TimeoutError:
        raise PageUnreadable("it takes too long to convert; ask for it as html") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise PageUnreadable(
            _WHY.get(process.returncode, "it cannot be converted; ask for it as html")
        )
    return text.decode()
