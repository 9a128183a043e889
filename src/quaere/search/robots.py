"""What a site's robots.txt lets a program fetch (RFC 9309).

read_robots("User-agent: *\\nDisallow: /private/\\nAllow: /private/open", "quaere").allows("/private/x") == False
"""

from urllib.parse import unquote

from msgspec import Struct

MAX_BYTES = 500 << 10
_MAX_RULES = 5000


class Rule(Struct, frozen=True):
    """A line of robots.txt: paths of this pattern may be fetched, or not.

    Rule(pattern="/private/*.html$", is_allowed=False)
    """

    pattern: str
    is_allowed: bool


class Robots(Struct, frozen=True):
    """The rules for one program; of those that match a path, the one with the longest pattern decides.

    Robots([Rule("/private/", is_allowed=False)])
    """

    rules: list[Rule] = []

    def allows(self, path: str) -> bool:
        """True if the path, with its query, may be fetched."""
        plain = unquote(path)
        matching = [rule for rule in self.rules if _matches(rule.pattern, plain)]
        return max(matching, key=lambda rule: (len(rule.pattern), rule.is_allowed), default=Rule("", True)).is_allowed


NOTHING_ALLOWED = Robots([Rule("/", is_allowed=False)])


def read_robots(text: str, program: str) -> Robots:
    """The rules of the groups that name the program; if there are none, those of the groups for all programs."""
    groups: dict[str, list[Rule]] = {}
    named: set[str] = set()  # of the group: only this program's name and that for all, since a file may list thousands
    is_open = False  # whether the last line named a program, so that another name joins the group
    for line in text.removeprefix("\ufeff").splitlines():
        field, colon, value = (part.strip() for part in line.partition("#")[0].partition(":"))
        field = field.lower()
        if colon and field == "user-agent":
            named = (named if is_open else set()) | ({value.lower()} & {program, "*"})
            is_open = True
            groups |= {name: groups.get(name, []) for name in named}
        elif field in ("allow", "disallow"):
            is_open = False
            for name in named if value else ():
                groups[name].append(Rule(unquote(value), field == "allow"))
    return Robots(groups.get(program, groups.get("*", []))[:_MAX_RULES])


def _matches(pattern: str, path: str) -> bool:
    """True if the pattern matches the start of the path; `*` stands for any text, a last `$` for the path's end."""
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    for part in others:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if not pattern.endswith("$"):
        return True
    last = others[-1] if others else ""  # the last part may also be found further to the right
    return at == len(path) or (bool(others) and path.endswith(last))
