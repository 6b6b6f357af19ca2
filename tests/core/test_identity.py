"""A session finds its agents again after their address has changed, and never somebody else's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.identity import (
    Ambiguous,
    FoundSource,
    Match,
    NotFound,
    exact_identity,
    find_source,
    is_called,
    portable_key,
    portable_text,
    source_called,
    split_name,
    stable_identity,
)

HTTPS = "https://agents.example.com/team/butler.yaml"


def exactly(key: str) -> FoundSource:
    return FoundSource(key=key, exact=True)


def moved_to(key: str) -> FoundSource:
    return FoundSource(key=key, exact=False)


FINDS: dict[str, tuple[str, list[str], Match]] = {
    "the same key": ("butler.yaml", ["pilot.yaml", "butler.yaml"], exactly("butler.yaml")),
    "the same key, listed twice": ("a", ["a", "a"], exactly("a")),
    "the same key, though another decodes to it": ("a b", ["a%20b", "a b"], exactly("a b")),
    "the same key, though others have its address": (
        f"{HTTPS}?v=1",
        [f"{HTTPS}?v=2", f"{HTTPS}?v=1"],
        exactly(f"{HTTPS}?v=1"),
    ),
    "an encoded key by its decoded one": ("a%20b", ["a b"], exactly("a b")),
    "a decoded key by its encoded one": ("a b", ["a%20b"], exactly("a%20b")),
    "escapes in either case": ("caf%C3%A9", ["caf%c3%a9"], exactly("caf%c3%a9")),
    "an empty key by itself": ("", [""], exactly("")),
    "a new version in the query": (f"{HTTPS}?v=1", [f"{HTTPS}?v=2"], moved_to(f"{HTTPS}?v=2")),
    "a query that is gone": (f"{HTTPS}?v=1", [HTTPS], moved_to(HTTPS)),
    "another fragment": (f"{HTTPS}#a", [f"{HTTPS}#b"], moved_to(f"{HTTPS}#b")),
    "another token in the user part": (
        "https://me:old@host/x",
        ["https://you:new@host/x"],
        moved_to("https://you:new@host/x"),
    ),
    "scheme and host in another case": (
        "HTTPS://Host/x",
        ["https://host/x"],
        moved_to("https://host/x"),
    ),
    "the default port, spelled out": (
        "https://host/x",
        ["https://host:443/x"],
        moved_to("https://host:443/x"),
    ),
    "the default port of plain HTTP": (
        "http://host:80/x",
        ["http://host/x"],
        moved_to("http://host/x"),
    ),
    "an empty port": ("http://host:/x", ["http://host/x"], moved_to("http://host/x")),
    "no path by the root": ("http://host", ["http://host/"], moved_to("http://host/")),
    "an encoded path under another query": (
        "http://host/a%20b?v=1",
        ["http://host/a b?v=2"],
        moved_to("http://host/a b?v=2"),
    ),
    "an IPv6 host": ("http://[::1]/x?1", ["http://[::1]:80/x"], moved_to("http://[::1]:80/x")),
    "a file that has moved": ("/old/a b.yaml", ["/new/a%20b.yaml"], moved_to("/new/a%20b.yaml")),
    "a file by its name": (
        "butler.yaml",
        ["/x/pilot.yaml", "/x/butler.yaml"],
        moved_to("/x/butler.yaml"),
    ),
    "a file, though two others have its name": (
        "/old/a.yaml",
        ["/one/a.yaml", "/two/a.yaml"],
        Ambiguous(keys=("/one/a.yaml", "/two/a.yaml")),
    ),
    "HTTPS where HTTP was": ("http://host/x?1", ["https://host/x"], moved_to("https://host/x")),
    "HTTP where HTTPS was, ports spelled out": (
        "https://host:443/x",
        ["http://host:80/x"],
        moved_to("http://host:80/x"),
    ),
    "one of HTTP and HTTPS, though both are served": (
        "http://host/x?1",
        ["http://host/x", "https://host/x"],
        Ambiguous(keys=("http://host/x", "https://host/x")),
    ),
    "another scheme's port": (
        "oci://host:5000/x?1",
        ["oci://host:5000/x"],
        moved_to("oci://host:5000/x"),
    ),
}

NOT_FOUND: dict[str, tuple[str, str]] = {
    "a file by a file with another case": ("Butler.yaml", "butler.yaml"),
    "a file by its name with a query": ("butler.yaml?v=1", "butler.yaml"),
    "a file by a folder of its name": ("/x/butler.yaml/", "/x/butler.yaml"),
    "a module by another agent of it": ("agents:butler", "agents:pilot"),
    "a path by a path with another case": ("http://host/A", "http://host/a"),
    "a path by a longer one": ("http://host/a", "http://host/a/"),
    "a host by another": ("http://one/a", "http://two/a"),
    "a scheme by another": ("oci://host/a", "https://host/a"),
    "a port of HTTP by the same of HTTPS": ("http://host:443/a", "https://host/a"),
    "a port by another": ("http://host:8080/a", "http://host:8081/a"),
    "a port by the default one": ("http://host:443/a", "http://host/a"),
    "port 0 by the default one": ("http://host:0/a", "http://host/a"),
    "a key decoded twice": ("a%2520b", "a b"),
    "a bad escape": ("a%zz?1", "a%zz"),
    "a bad escape in a path": ("http://host/%zz?1", "http://host/%zz?2"),
    "an escape that is cut off": ("http://host/%2", "http://host/%2?v=1"),
    "an escape that is no text": ("http://host/%ff", "http://host/%ff?v=1"),
    "a port that is no number": ("http://host:eighty/a", "http://host:eighty/a?v=1"),
    "a port out of range": ("http://host:65536/a", "http://host:65536/a?v=1"),
    "a broken IPv6 host": ("http://[::1/a", "http://[::1/a?v=1"),
    "a host that is not there": ("http:///a", "http:///a?v=1"),
    "a scheme that is not there": ("//host/a?next=http://b", "//host/a?next=http://c"),
    "a line end in a path": ("http://host/a\nb", "http://host/ab"),
    "a tab in a host": ("http://ho\tst/a?1", "http://host/a"),
    "a space before it": (" http://host/a?1", "http://host/a"),
}


@pytest.mark.parametrize(("wanted", "live", "found"), FINDS.values(), ids=FINDS.keys())
def test_a_source_is_found_by(wanted: str, live: list[str], found: Match) -> None:
    assert find_source(wanted, live) == found


NAMED: dict[str, tuple[str, str, dict[str, str], Match]] = {
    "its name at another place": (
        "/old/a.yaml",
        "bot",
        {"/new/b.yaml": "bot"},
        moved_to("/new/b.yaml"),
    ),
    "its name at another host": (
        "http://a/x",
        "bot",
        {"https://b/y": "bot"},
        moved_to("https://b/y"),
    ),
    "its name where a module was": ("shop:team", "bot", {"demo": "bot"}, moved_to("demo")),
    "its address, though another source has its name by now": (
        "/a.yaml",
        "bot",
        {"/a.yaml": "old", "/b.yaml": "bot"},
        exactly("/a.yaml"),
    ),
    "its name before its file's": (
        "/old/a.yaml",
        "bot",
        {"/new/a.yaml": "", "/new/b.yaml": "bot"},
        moved_to("/new/b.yaml"),
    ),
    "none of two sources with its name": (
        "/old/a.yaml",
        "bot",
        {"/new/b.yaml": "bot", "/new/c.yaml": "bot"},
        Ambiguous(keys=("/new/b.yaml", "/new/c.yaml")),
    ),
    "its file's name, where the file has no given name": (
        "/old/a.yaml",
        "bot",
        {"/new/a.yaml": ""},
        moved_to("/new/a.yaml"),
    ),
    "its file's name, if it had no given name": (
        "/old/a.yaml",
        "",
        {"/new/a.yaml": "bot"},
        moved_to("/new/a.yaml"),
    ),
    "no source with another given name": (
        "/sales/agent.yaml",
        "sales",
        {"/support/agent.yaml": "support"},
        NotFound(key="/sales/agent.yaml"),
    ),
}


@pytest.mark.parametrize(("wanted", "name", "live", "found"), NAMED.values(), ids=NAMED.keys())
def test_a_source_with_a_given_name_is_found_by(
    wanted: str, name: str, live: dict[str, str], found: Match
) -> None:
    assert find_source(wanted, live, name=name, names=live) == found


@pytest.mark.parametrize(("wanted", "live"), NOT_FOUND.values(), ids=NOT_FOUND.keys())
def test_a_source_is_not_found_by_mistaking(wanted: str, live: str) -> None:
    assert find_source(wanted, [live]) == NotFound(key=wanted)
    assert find_source(live, [wanted]) == NotFound(key=live)


MALFORMED = [
    "a%",
    "%zz",
    "%ff",
    "http://[::1/a",
    "http://h:x/",
    "http://h:99999/",
    "http://h/%",
    "\n",
]


@pytest.mark.parametrize("key", MALFORMED)
def test_a_malformed_key_is_its_own_identity_and_finds_itself(key: str) -> None:
    assert exact_identity(key) == key
    assert stable_identity(key) == ("key", key)
    assert find_source(key, [*MALFORMED, "other"]) == exactly(key)


PORTABLE = {
    "/agents/of/ada/butler.yaml": "butler.yaml",
    "/agents/a:b.yaml": "a:b.yaml",
    "agents/butler.yaml": "agents/butler.yaml",
    "demo": "demo",
    "my.module:agent": "my.module:agent",
    "https://me:token@Host:8443/a%20b.yaml?key=s3cret#x": "https://Host:8443/a%20b.yaml",
    "https://[::1]/a": "https://[::1]/a",
    "https://me:s3cret@[bad/x": "https://…",
    "https://me:s3/cret@host/x": "https://…",
    "https://host:s3cret/x?mail=a@b&key=s3cret": "https://…",
    "https:me:s3cret@host": "…",
    "https:///x?key=s3cret": "https://…",
}


@given(
    st.sampled_from(["https", "http", "git+ssh", "x"]),
    st.text(alphabet="/?#@:[]%. \n", max_size=6),
    st.text(alphabet="/?#@:[]%. \n", max_size=6),
)
def test_no_key_shows_what_stands_before_its_host_or_in_its_query(
    scheme: str, odd: str, more: str
) -> None:
    for key in (
        f"{scheme}://me:s3cret{odd}@host/x{more}",
        f"{scheme}://{odd}host{more}?key=s3cret",
    ):
        assert "s3cret" not in portable_key(key)


@pytest.mark.parametrize(("key", "portable"), PORTABLE.items())
def test_a_key_leaves_the_house_without_directories_and_tokens(key: str, portable: str) -> None:
    assert portable_key(key) == portable


@given(st.sampled_from([*PORTABLE, *MALFORMED]) | st.text())
def test_what_has_left_the_house_is_found_again(key: str) -> None:
    out = portable_key(key)
    assert portable_key(out) == out
    if ":" not in out.rpartition("/")[2] and not (out.endswith("…") and out != key):
        assert isinstance(find_source(out, [key]), FoundSource)


@pytest.mark.parametrize(
    ("text", "of", "portable"),
    [
        ("/agents/a b/c.yaml: line 3", "/agents/a b/butler.yaml", "c.yaml: line 3"),
        ("cannot read /etc/ssl/key.pem", "/agents/butler.yaml", "cannot read key.pem"),
        ("cannot read /etc/ssl/key.pem", "butler.yaml", "cannot read key.pem"),
        ("see https://host/team/x and a/b/c", HTTPS, "see https://host/team/x and a/b/c"),
    ],
)
def test_words_about_a_source_leave_the_house_without_directories(
    text: str, of: str, portable: str
) -> None:
    assert portable_text(text, of=of) == portable


def test_nothing_is_found_among_none() -> None:
    assert find_source("a", []) == NotFound(key="a")


def test_several_that_decode_to_it_are_ambiguous() -> None:
    live = ["a%2520b", "a%20b c", "a b%20c"]
    assert find_source("a b c", live) == Ambiguous(keys=("a%20b c", "a b%20c"))


def test_several_with_the_same_address_are_ambiguous() -> None:
    """Side-by-side variants are each found by their own key, and by no other."""
    live = [f"{HTTPS}?v=2", f"{HTTPS}?v=3", "pilot.yaml"]
    assert find_source(f"{HTTPS}?v=1", live) == Ambiguous(keys=tuple(live[:2]))
    assert find_source(live[0], live) == exactly(live[0])


def test_one_source_listed_twice_is_not_ambiguous() -> None:
    assert find_source(f"{HTTPS}?v=1", [HTTPS, HTTPS]) == moved_to(HTTPS)


# ── for all keys ─────────────────────────────────────────────────────────────────────────────

PIECES = st.sampled_from(
    [
        *("http", "https", "HTTP", "://", ":", "/", "?", "#", "@", "%", "%20", "%41", "%zz", "%ff"),
        *("a", "A", "h", " ", "\n", "[", "]", "::1", "80", "443", "0", "٣", "v=1", "é"),
    ]
)
KEYS = st.one_of(st.text(max_size=8), st.lists(PIECES, max_size=9).map("".join))
SIMILAR = st.builds(
    "{}://{}{}/{}{}".format,
    st.sampled_from(["http", "HTTP", "https"]),
    st.sampled_from(["", "me@"]),
    st.sampled_from(["h", "H", "h:80", "h:443"]),
    st.sampled_from(["", "a", "%61", "%zz"]),
    st.sampled_from(["", "?v=1", "?v=2", "#x"]),
)


@given(wanted=KEYS | SIMILAR, live=st.lists(KEYS | SIMILAR, max_size=5))
def test_a_source_is_found_only_if_it_is_the_only_one_that_it_can_be(
    wanted: str, live: list[str]
) -> None:
    """Never a guess among several."""
    found = find_source(wanted, live)
    keys = set(live)
    decoded = {key for key in keys if exact_identity(key) == exact_identity(wanted)}
    same_address = {key for key in keys if stable_identity(key) == stable_identity(wanted)}
    match found:
        case FoundSource():
            candidates = decoded if found.exact else same_address
            assert found.key == wanted in keys or candidates == {found.key}
            assert found.exact or not decoded
        case Ambiguous():
            assert wanted not in keys
            assert len(found.keys) > 1
            assert set(found.keys) == (decoded or same_address)
        case NotFound():
            assert found.key == wanted
            assert not decoded and not same_address


@given(key=KEYS | SIMILAR, others=st.lists(KEYS | SIMILAR, max_size=5))
def test_a_key_that_is_live_always_finds_itself(key: str, others: list[str]) -> None:
    assert find_source(key, [*others, key]) == exactly(key)


@given(wanted=KEYS | SIMILAR, live=st.lists(KEYS | SIMILAR, max_size=5))
def test_the_order_in_which_sources_are_listed_does_not_matter(
    wanted: str, live: list[str]
) -> None:
    forwards, backwards = find_source(wanted, live), find_source(wanted, live[::-1])
    assert type(forwards) is type(backwards)
    if isinstance(forwards, Ambiguous) and isinstance(backwards, Ambiguous):
        assert set(forwards.keys) == set(backwards.keys)
    else:
        assert forwards == backwards


# ── names that an operator gives ─────────────────────────────────────────────────────────────


def test_clients_see_a_source_by_its_given_name_and_without_one_by_the_portable_part_of_its_key() -> (
    None
):
    assert source_called(key="/opt/agents/butler.yaml", name="team") == "team"
    for unnamed in (None, ""):
        assert source_called(key="/opt/agents/butler.yaml", name=unnamed) == "butler.yaml"


def test_a_source_is_meant_by_its_name_its_key_or_the_portable_part_of_its_key() -> None:
    key = "/opt/agents/butler.yaml"
    for text in ("team", key, "butler.yaml"):
        assert is_called(text, key=key, name="team")
    for text in ("", "butler", "agents/butler.yaml"):
        assert not is_called(text, key=key, name="team")
    assert not is_called("", key="", name="")


@pytest.mark.parametrize(
    ("text", "name", "reference"),
    [
        ("team=butler.yaml", "team", "butler.yaml"),
        ("butler.yaml", "", "butler.yaml"),
        ("team=https://host/a?v=1", "team", "https://host/a?v=1"),
        ("https://host/a?v=1", "", "https://host/a?v=1"),
        ("=butler.yaml", "", "=butler.yaml"),
        ("my team=butler.yaml", "", "my team=butler.yaml"),
    ],
)
def test_a_reference_may_begin_with_a_given_name(text: str, name: str, reference: str) -> None:
    assert split_name(text) == (name, reference)
