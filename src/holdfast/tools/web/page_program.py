"""A program, not a module of the server: it reads a web page from stdin, and writes it as Markdown or plain text.

`page_markdown.py` starts it, with the style as its argument. A page is foreign text: the library that reads it is not
ours, keeps the interpreter to itself while it works, and may need much memory for a page that was made for that. So
it has a process, with bounds, and nothing of the server's in it.
"""

from __future__ import annotations

import resource
import sys

try:
    from html_to_markdown import ConversionOptions, convert
except ImportError:
    sys.exit(4)

UNREADABLE = 3
CPU_S, MEMORY_BYTES = 10, 2 << 30


def main() -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    html = sys.stdin.buffer.read().decode(errors="replace")
    options = ConversionOptions(extract_metadata=False, output_format=sys.argv[1])
    text = (convert(html, options).content or "").strip()
    if not text and has_words(html):
        return UNREADABLE
    sys.stdout.buffer.write(text.encode(errors="replace"))
    return 0


def has_words(html: str) -> bool:
    """Whether a page shows any text. One pass: the text after each tag, but for scripts and styles."""
    hidden = ""
    for each in html.split("<")[1:] if "<" in html else [f">{html}"]:
        tag, _, text = each.partition(">")
        name = tag.split(None, 1)[0].lower() if tag.strip() else ""
        if hidden:
            hidden = "" if name == f"/{hidden}" else hidden
        elif name in ("script", "style", "title", "template", "noscript"):
            hidden = name
        if not hidden and text.strip():
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
