"""The live sources: model ids, who continues a session, and versions that live as long as their turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from holdfast import limits
from holdfast.agents.agent import Agent, ModelConfig, Source, Team
from holdfast.agents.registry import (
    Broken,
    Chosen,
    Loaded,
    NotClosed,
    Registry,
    Removed,
    Report,
)
from holdfast.agents.remote_files import Fetcher
from holdfast.agents.sources import (
    FileSource,
    InvalidSource,
    Origin,
    SourceFolder,
    Supplies,
    UrlSource,
    parse_source,
)
from holdfast.core.history.conversation import Snapshot
from holdfast.core.turns.events import TurnRequest
from holdfast.errors import (
    AgentAmbiguous,
    AgentMismatch,
    AgentNotFound,
    AgentUnavailable,
    HoldfastError,
    ModelNotFound,
    SourceUnusable,
    TurnFailed,
)
from holdfast.ids import SessionId, TurnId
from holdfast.tools.web.address_guard import AddressGuard
from tests.agents.models import Factory, Mute
from tests.agents.web import Web, serving
from tests.core.builders import mint


class Given:
    """A source whose versions a test gives it."""

    poll_s: float | None = 1.0

    def __init__(self, key: str, *agents: str, name: str = "", given: str = "") -> None:
        self.key = key
        self.name = given or name or key
        self.given_name = given
        self.asked = 0
        self.teams: list[Team] = []
        self.problem = ""
        self.version = 1
        self._loaded = 0
        self.agents = agents or ("root",)

    def becomes(self, *agents: str) -> None:
        """There is a new version, with these agents."""
        self.version += 1
        self.agents = agents or self.agents
        self.problem = ""

    def breaks(self, problem: str = "no luck") -> None:
        self.version += 1
        self.problem = problem

    async def load(self) -> Team:
        if self.problem:
            raise SourceUnusable(self.key, self.problem)
        self._loaded = self.version
        model = Mute(ModelConfig(provider="a", model="b"))
        agents = {name: Agent(name, model, description=f"{name}!") for name in self.agents}
        entry = "root" if "root" in agents else self.agents[0]
        self.teams.append(Team(agents, entry=entry, digest=f"{self.key}-{self.version}"))
        return self.teams[-1]

    async def changed(self) -> bool:
        self.asked += 1
        if self.problem:
            raise SourceUnusable(self.key, self.problem)
        return self._loaded != self.version

    def is_closed(self, version: int) -> bool:
        model = cast(Mute, next(iter(self.teams[version - 1].agents.values())).model)
        return model.closed > 0


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def registry_of(
    *origins: Origin,
    aliases: dict[str, str] | None = None,
    now_s: Callable[[], float] | None = None,
) -> Registry:
    made = Registry(origins, aliases=aliases, now_s=now_s or Clock())
    await made.refresh()
    return made


def session(source: str, entry: str = "root", agent: str = "") -> Snapshot:
    return Snapshot(
        session_id=mint(SessionId), source_key=source, entry_agent=entry, agent=agent or entry
    )


def request_for(chosen: Chosen) -> TurnRequest:
    return TurnRequest(
        turn_id=mint(TurnId),
        source_key=chosen.source_key,
        source_name=chosen.source_name,
        source_digest=chosen.source_digest,
        agent=chosen.agent.name,
    )


def team_for(registry: Registry, request: TurnRequest) -> Team:
    with registry.team_for(request) as team:
        return team


# ── model ids ──


@pytest.mark.parametrize(
    ("sources", "ids"),
    [
        ([], []),
        ([("a", "root", "clerk")], ["root", "clerk"]),
        ([("a", "root"), ("b", "demo")], ["root", "demo"]),
        ([("a", "root", "clerk"), ("b", "root")], ["a/root", "clerk", "b/root"]),
    ],
)
async def test_an_agent_goes_by_its_name_where_only_one_has_it(
    sources: list[tuple[str, ...]], ids: list[str]
) -> None:
    registry = await registry_of(*(Given(*each) for each in sources))
    assert [each.id for each in registry.listing()] == ids


async def test_variants_side_by_side_are_listed_under_their_exact_keys() -> None:
    keys = ["https://u:pw@x/t.yaml?v=1", "https://x/t.yaml?v=2"]
    registry = await registry_of(*(Given(key, name="t") for key in keys))
    assert [each.id for each in registry.listing()] == [
        "https://x/t.yaml?v=1/root",
        "https://x/t.yaml?v=2/root",
    ]
    assert registry.find("https://x/t.yaml?v=2/root").source_key == keys[1]
    assert registry.find(f"{keys[0]}/root").source_key == keys[0]


async def test_addresses_that_are_shown_alike_are_still_two() -> None:
    keys = ["https://u:1@x/t", "https://u:2@x/t"]
    registry = await registry_of(*(Given(key, name="t") for key in keys))
    ids = [each.id for each in registry.listing()]
    assert len(set(ids)) == 2
    assert [registry.find(each).source_key for each in ids] == keys


async def test_a_qualified_name_always_works() -> None:
    registry = await registry_of(Given("/data/a.yaml", "root", name="a"), Given("b", "clerk"))
    assert registry.find("a/root") == registry.find("root") == registry.find("/data/a.yaml/root")


async def test_a_source_goes_by_the_name_of_its_file_where_no_agent_has_it() -> None:
    sources = (
        Given("/x/shop.yaml", "root", "cook", name="shop"),
        Given("/y/cook.yaml", name="cook"),
    )
    registry = await registry_of(*sources)
    assert registry.choose("shop").agent is registry.choose("shop/root").agent
    assert registry.choose("cook").agent is registry.choose("shop/cook").agent, "agents come first"
    assert registry.choose("shop", session("/x/shop.yaml", agent="cook")).agent.name == "cook"
    twice = await registry_of(
        Given("/x/shop.yaml", name="shop"), Given("/y/shop.yaml", name="shop")
    )
    with pytest.raises(ModelNotFound):
        twice.choose("shop")


async def test_what_is_listed_about_an_agent() -> None:
    registry = await registry_of(Given("/data/a.yaml", "root", "clerk", name="a"))
    listed = registry.find("clerk")
    assert (listed.agent, listed.source, listed.source_key) == ("clerk", "a", "/data/a.yaml")
    assert (listed.source_digest, listed.description) == ("/data/a.yaml-1", "clerk!")
    assert (listed.is_entry, registry.find("root").is_entry) == (False, True)


async def test_who_begins_a_source_is_listed_first() -> None:
    """A client that names nobody, as the first one of a list, means who the source begins with."""
    registry = await registry_of(Given("a", "clerk", "root", "cook"), Given("b", "zoe", "abe"))
    listed = [each.id for each in registry.listing()]
    assert listed == ["root", "clerk", "cook", "zoe", "abe"]


async def test_an_alias_may_be_a_pattern_and_the_exact_name_comes_first() -> None:
    aliases = {"claude-*": "root", "claude-h*": "clerk", "claude-haiku-4-5": "clerk"}
    registry = await registry_of(Given("a", "root", "clerk"), aliases=aliases)
    assert registry.find("claude-opus-4-8").agent == "root"
    assert registry.find("claude-haiku-4-5").agent == "clerk"
    with pytest.raises(ModelNotFound):
        registry.find("not-claude-3")


async def test_aliases_lead_to_ids() -> None:
    aliases = {"gpt-4o": "clerk", "gpt-4": "a/root", "root": "clerk", "gone": "nobody"}
    registry = await registry_of(Given("a", "root", "clerk"), aliases=aliases)
    assert registry.find("gpt-4o").agent == "clerk"
    assert registry.find("gpt-4").agent == "root"
    assert registry.find("root").agent == "root", "an agent's own name comes first"
    with pytest.raises(ModelNotFound, match="'gone' does not exist"):
        registry.find("gone")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("nobody", "the model 'nobody' does not exist; there are: a/root, b/root, clerk"),
        ("root", "the model 'root' could be several agents; there are: a/root, b/root, clerk"),
        ("c/root", "the model 'c/root' could be several agents"),
        ("", "the model '' is not named, and there are several"),
        ("/", "the model '/' does not exist"),
        ("x" * 1000, "…' does not exist"),
    ],
)
async def test_unknown_and_ambiguous_names_are_told_with_what_there_is(
    model: str, told: str
) -> None:
    registry = await registry_of(Given("a", "root"), Given("b", "root", "clerk"))
    with pytest.raises(ModelNotFound) as raised:
        registry.choose(model)
    assert told in str(raised.value)
    assert raised.value.known == ("a/root", "b/root", "clerk")


async def test_with_one_source_nobody_has_to_be_named() -> None:
    registry = await registry_of(Given("a", "clerk", "root"))
    assert registry.choose("").agent.name == "root"


# ── who continues a session ──

TWO = (("a", "root", "clerk", "boss"), ("b", "demo"))


@pytest.mark.parametrize(
    ("model", "entry", "agent", "chosen"),
    [
        ("root", "root", "root", "root"),
        ("root", "root", "clerk", "clerk"),  # after a hand-off
        ("a/root", "root", "clerk", "clerk"),
        ("", "root", "clerk", "clerk"),
        ("boss", "root", "clerk", "boss"),  # another one of the same source: a switch
        ("clerk", "root", "clerk", "clerk"),
        ("clerk", "root", "boss", "clerk"),
        ("root", "clerk", "boss", "root"),
        ("main", "root", "clerk", "clerk"),  # an alias of the entry agent
        # whoever spoke last has left the source
        ("root", "root", "gone", "root"),
        ("", "root", "gone", "root"),
        ("boss", "gone", "gone", "boss"),
    ],
)
async def test_who_speaks_next_in_a_session(
    model: str, entry: str, agent: str, chosen: str
) -> None:
    registry = await registry_of(*(Given(*each) for each in TWO), aliases={"main": "root"})
    found = registry.choose(model, session("a", entry, agent))
    assert (found.agent.name, found.source_key, found.source_digest) == (chosen, "a", "a-1")


@pytest.mark.parametrize(
    ("model", "source", "entry", "kind", "code"),
    [
        ("demo", "a", "root", AgentMismatch, "agent_mismatch"),
        ("b/demo", "a", "root", AgentMismatch, "agent_mismatch"),
        ("nobody", "a", "root", ModelNotFound, "model_not_found"),
        ("root", "gone.yaml", "root", AgentNotFound, "agent_not_found"),
        ("demo", "gone.yaml", "root", AgentNotFound, "agent_not_found"),
        ("", "gone.yaml", "root", AgentNotFound, "agent_not_found"),
        ("", "a", "gone", AgentNotFound, "agent_not_found"),
    ],
)
async def test_a_session_that_cannot_go_on_is_refused_clearly(
    model: str, source: str, entry: str, kind: type[HoldfastError], code: str
) -> None:
    registry = await registry_of(*(Given(*each) for each in TWO))
    with pytest.raises(AgentUnavailable) as raised:
        registry.choose(model, session(source, entry))
    assert isinstance(raised.value, kind)
    assert raised.value.code == code


async def test_in_a_session_a_plain_name_means_its_own_source() -> None:
    """Adding a source with another `root` must not break the conversations that there are."""
    registry = await registry_of(Given("a", "root"), Given("b", "root"))
    for source in ("a", "b"):
        assert registry.choose("root", session(source)).source_key == source


async def test_a_new_session_is_chosen_like_no_session() -> None:
    registry = await registry_of(Given("a", "root"))
    empty = Snapshot(session_id=mint(SessionId))
    assert registry.choose("root", empty) == registry.choose("root")


V1, V2, V3 = (f"https://x.org/team.yaml?v={n}" for n in (1, 2, 3))


async def test_a_session_goes_on_when_the_query_of_its_source_changes() -> None:
    before = await registry_of(Given(V1, name="team"))
    begun = before.choose("root")
    assert begun.source_key == V1
    after_restart = await registry_of(Given(V2, name="team"))
    again = after_restart.choose("root", session(begun.source_key))
    assert (again.source_key, again.source_digest) == (V2, f"{V2}-1")
    team = team_for(after_restart, request_for(begun))
    assert team.digest == f"{V2}-1"


async def test_with_two_live_variants_and_none_exact_it_is_refused() -> None:
    registry = await registry_of(Given(V2, name="team"), Given(V3, name="team"))
    for model in ("root", ""):
        with pytest.raises(AgentAmbiguous) as raised:
            registry.choose(model, session(V1))
        assert raised.value.candidates == (f"{V2}/root", f"{V3}/root")
    with pytest.raises(TurnFailed) as failed:
        team_for(registry, TurnRequest(turn_id=mint(TurnId), source_key=V1))
    assert failed.value.reason == "agent_ambiguous"


async def test_a_request_that_names_one_of_several_variants_has_chosen() -> None:
    registry = await registry_of(
        Given(V2, "root", "clerk"), Given(V3, "root", given="new"), Given("b", "demo")
    )
    assert registry.choose(f"{V2}/root", session(V1)).source_key == V2
    assert registry.choose("new/root", session(V1)).source_key == V3
    assert registry.choose("clerk", session(V1)).agent.name == "clerk"
    for other in ("demo", "nobody"):
        with pytest.raises(AgentAmbiguous):
            registry.choose(other, session(V1))


MOVES: dict[str, tuple[str, str]] = {
    "another release": ("/data/releases/42/agent.yaml", "/data/releases/43/agent.yaml"),
    "a given name at another place": ("bot=/data/a/agent.yaml", "bot=/opt/butler.yaml"),
    "a given name at another host": ("bot=http://a/x.yaml", "bot=https://b/y.yaml"),
    "encryption": ("http://a/x.yaml", "https://a/x.yaml"),
    "a name that was given later": ("/data/agent.yaml", "bot=/opt/agent.yaml"),
    "a name that is not given any more": ("bot=/data/agent.yaml", "/opt/agent.yaml"),
}


@pytest.mark.parametrize(("before", "after"), MOVES.values(), ids=MOVES.keys())
async def test_a_session_goes_on_after(before: str, after: str) -> None:
    def source(text: str) -> Given:
        name, _, key = text.rpartition("=")
        return Given(key, "root", given=name)

    begun = (await registry_of(source(before), Given("b", "demo"))).choose("root")
    registry = await registry_of(source(after), Given("b", "demo"))
    held = msgspec.structs.replace(session(begun.source_key), source_name=begun.source_name)
    assert registry.choose("root", held).source_key == source(after).key
    with registry.team_for(request_for(begun)) as team:
        assert team.digest == f"{source(after).key}-1"


async def test_a_file_that_was_served_alone_goes_on_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    file = tmp_path / "agents" / "butler.yaml"
    supplies = Supplies(make_model=Factory())
    for before in (str(file), f"bot={file}"):
        source = parse_source(before, supplies)
        assert isinstance(source, FileSource)
        folder = parse_source(str(tmp_path / "agents"), supplies)
        file.write_text("agents: {root: {model: a/b, instruction: Hi.}}\nversion: 5\n")
        registry = await registry_of(folder)
        held = msgspec.structs.replace(session(source.key), source_name=source.given_name)
        assert registry.choose("root", held).source_key == source.key


async def test_every_refusal_names_the_command_that_helps() -> None:
    registry = await registry_of(Given(V2), Given(V3), Given("b", "demo"))
    for source, model, to in (
        (V1, "root", f"'{V2}/root'"),
        ("gone.yaml", "demo", "demo"),
        ("gone.yaml", "", "MODEL"),
        ("b", f"{V2}/root", f"'{V2}/root'"),
    ):
        held = session(source, "demo" if source == "b" else "root")
        with pytest.raises(AgentUnavailable) as raised:
            registry.choose(model, held)
        assert f"`holdfast sessions rebind {held.session_id} --to {to}`" in str(raised.value)


async def test_with_two_live_variants_the_exact_one_goes_on() -> None:
    registry = await registry_of(Given(V1, name="team"), Given(V2, name="team"))
    assert registry.choose("root", session(V2)).source_key == V2
    with pytest.raises(AgentMismatch):
        registry.choose(f"{V1}/root", session(V2))


async def test_no_refusal_tells_a_secret() -> None:
    registry = await registry_of(Given("b", "demo"))
    with pytest.raises(AgentNotFound) as raised:
        registry.choose("", session("https://ada:s3cret@x/t?token=s3cret"))
    assert "s3cret" not in str(raised.value)


# ── reloading ──


async def test_a_new_version_is_served_to_new_turns() -> None:
    source = Given("a", "root")
    registry = await registry_of(source)
    assert await registry.refresh() == ()
    source.becomes("root", "clerk")
    assert await registry.refresh() == (Loaded(source="a", digest="a-2"),)
    assert registry.choose("clerk").source_digest == "a-2"


async def test_a_broken_version_keeps_the_old_one_serving_and_is_reported_once() -> None:
    source = Given("a", "root")
    registry = await registry_of(source)
    source.breaks("a:1: not YAML")
    told = Broken(source="a", problems=("a:1: not YAML",), serving=True)
    assert await registry.refresh() == (told,)
    assert await registry.refresh() == ()
    assert [(each.source, each.problems) for each in registry.broken()] == [
        ("a", ("a:1: not YAML",))
    ]
    assert registry.choose("root").source_digest == "a-1"
    source.becomes()
    assert await registry.refresh() == (Loaded(source="a", digest="a-3"),)
    assert registry.broken() == ()


async def test_a_trouble_that_passes_is_forgotten() -> None:
    source = Given("a", "root")
    registry = await registry_of(source)
    source.problem = "no network"
    await registry.refresh()
    source.problem = ""
    assert await registry.refresh() == ()
    assert registry.broken() == ()


async def test_a_source_that_is_broken_from_the_start_does_not_hold_up_others() -> None:
    broken, good = Given("a", "root"), Given("b", "demo")
    broken.problem = "no luck"
    registry = Registry([broken, good])
    reports = await registry.refresh()
    assert reports == (
        Broken(source="a", problems=("no luck",), serving=False),
        Loaded(source="b", digest="b-1"),
    )
    assert [each.id for each in registry.listing()] == ["demo"]
    with pytest.raises(AgentNotFound, match="that source cannot be loaded now"):
        registry.choose("", session("a"))
    broken.becomes()
    assert Loaded(source="a", digest="a-2") in await registry.refresh()


async def test_a_bug_in_one_source_does_not_end_the_watch_over_others() -> None:
    class Buggy(Given):
        async def load(self) -> Team:
            raise ZeroDivisionError("oops")

    registry = Registry([Buggy("a"), Given("b", "demo")])
    told, _ = await registry.refresh()
    words = "a: it cannot be loaded: ZeroDivisionError: oops"
    assert told == Broken(source="a", problems=(words,), serving=False)
    assert [each.id for each in registry.listing()] == ["demo"]


async def test_sources_are_asked_in_their_own_time() -> None:
    clock, often, seldom, never = Clock(), Given("a", "x"), Given("b", "y"), Given("c", "z")
    seldom.poll_s, never.poll_s = 60.0, None
    registry = await registry_of(often, seldom, never, now_s=clock)
    for clock.now_s in (0.5, 1.0, 2.0, 59.0, 60.0):
        await registry.refresh(only_due=True)
    assert (often.asked, seldom.asked, never.asked) == (4, 1, 0)


async def test_watching_waits_and_refreshes() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)

    async def sleep(seconds: float) -> None:
        clock.now_s += seconds

    for rounds in (1, 2):
        await registry.watch(sleep)
        assert source.asked == rounds


async def test_what_happens_is_reported() -> None:
    told: list[Report] = []
    registry = Registry([Given("a", "root")], report=told.append)
    await registry.refresh()
    assert told == [Loaded(source="a", digest="a-1")]


def test_a_source_is_given_once() -> None:
    with pytest.raises(InvalidSource, match="'a' is given 2 times"):
        Registry([Given("a"), Given("a", name="b")])


# ── versions and turns ──


async def test_a_turn_is_played_with_the_version_it_began_with() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)
    begun = request_for(registry.choose("root"))
    source.becomes()
    await registry.refresh()
    assert team_for(registry, begun).digest == "a-1"
    assert team_for(registry, request_for(registry.choose("root"))).digest == "a-2"


async def test_a_version_is_open_while_a_turn_is_played_with_it_and_closed_afterwards() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)
    request = request_for(registry.choose("root"))
    with registry.team_for(request):
        source.becomes()
        await registry.refresh()
        clock.now_s += limits.version_keep_s
        await registry.refresh()
        assert not source.is_closed(1)
        assert team_for(registry, request).digest == "a-1"
    await registry.refresh()
    assert source.is_closed(1)
    assert not source.is_closed(2)


async def test_a_replaced_version_is_kept_for_turns_that_have_chosen_it() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)
    request = request_for(registry.choose("root"))
    source.becomes()
    await registry.refresh()
    clock.now_s += limits.version_keep_s - 1
    await registry.refresh()
    assert team_for(registry, request).digest == "a-1"


async def test_a_version_that_is_gone_is_continued_by_the_current_one() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)
    request = request_for(registry.choose("root"))
    source.becomes()
    await registry.refresh()
    clock.now_s += limits.version_keep_s
    await registry.refresh()
    assert source.is_closed(1)
    assert team_for(registry, request).digest == "a-2"


async def test_a_version_is_let_go_however_its_turn_ends() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)
    with pytest.raises(RuntimeError), registry.team_for(request_for(registry.choose("root"))):
        raise RuntimeError("however it ends")
    source.becomes()
    await registry.refresh()
    clock.now_s += limits.version_keep_s
    await registry.refresh()
    assert source.is_closed(1)


@pytest.mark.parametrize("source", ["gone.yaml", ""])
async def test_a_turn_whose_source_is_gone_fails_clearly(source: str) -> None:
    registry = await registry_of(Given("a", "root"))
    with pytest.raises(TurnFailed) as raised:
        team_for(registry, TurnRequest(turn_id=mint(TurnId), source_key=source))
    assert (raised.value.ended_by, raised.value.reason) == ("model_error", "agent_not_found")


async def test_a_version_that_cannot_be_closed_is_reported_and_let_go() -> None:
    source, clock = Given("a", "root"), Clock()
    registry = await registry_of(source, now_s=clock)

    async def refuse() -> None:
        raise OSError("stuck")

    source.teams[0].close = refuse  # type: ignore[method-assign]
    source.becomes()
    await registry.refresh()
    clock.now_s += limits.version_keep_s
    (told,) = await registry.refresh()
    assert told == NotClosed(source="a", problem="OSError: stuck")
    assert await registry.refresh() == ()


# ── with real sources ──

SMALL = "agents: {{root: {{model: x/{model}}}}}\n"


def supplies() -> Supplies:
    return Supplies(make_model=Factory(), fetcher=Fetcher(AddressGuard(allow_private=True)))


async def test_a_directory_gains_and_loses_sources(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL.format(model="one"))
    registry = await registry_of(SourceFolder(tmp_path, supplies()))
    assert [each.id for each in registry.listing()] == ["root"]
    (tmp_path / "b.yaml").write_text(SMALL.format(model="two"))
    await registry.refresh()
    assert [each.id for each in registry.listing()] == ["a/root", "b/root"]
    (tmp_path / "a.yaml").unlink()
    assert await registry.refresh() == (Removed(source="a"),)
    assert [each.id for each in registry.listing()] == ["root"]


async def test_a_directory_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    inner = tmp_path / "agents"
    inner.mkdir()
    (inner / "a.yaml").write_text(SMALL.format(model="one"))
    registry = await registry_of(SourceFolder(inner, supplies()))
    inner.rename(tmp_path / "away")
    reports = await registry.refresh()
    assert {type(each) for each in reports} == {Broken}
    assert await registry.refresh() == ()
    assert registry.choose("root").agent.name == "root"


async def test_a_file_in_a_directory_may_also_be_given_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SMALL.format(model="one"))
    registry = await registry_of(
        FileSource(path, supplies(), name="shop"), SourceFolder(tmp_path, supplies())
    )
    assert [each.source for each in registry.listing()] == ["shop"]


async def test_too_many_sources_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "sources_max", 2)
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(SMALL.format(model="one"))
    registry = Registry([Given("first"), SourceFolder(tmp_path, supplies())])
    reports = await registry.refresh()
    assert any(isinstance(each, Broken) and "too many" in each.problems[0] for each in reports)
    assert [each.id for each in registry.listing()] == ["root"]


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with serving() as made:
        made.files["/team.yaml"] = SMALL.format(model="one").encode()
        yield made


async def test_a_session_begun_under_one_url_goes_on_under_another_query(
    site: Web, tmp_path: Path
) -> None:
    """The whole way: a server restarts with a new version in the address, and nobody is lost."""
    first = await registry_of(UrlSource(site.url("/team.yaml?v=1"), supplies()))
    begun = first.choose("root")
    await first.close()

    site.files["/team.yaml"] = SMALL.format(model="two").encode()
    second = await registry_of(UrlSource(site.url("/team.yaml?v=2"), supplies()))
    again = second.choose("root", session(begun.source_key))
    assert again.source_key == site.url("/team.yaml?v=2")
    assert again.agent.model.name == "x/two"
    await second.close()

    both: list[Source] = [UrlSource(site.url(f"/team.yaml?v={n}"), supplies()) for n in (2, 3)]
    third = await registry_of(*both)
    with pytest.raises(AgentAmbiguous):
        third.choose("root", session(begun.source_key))
    assert third.choose("root", session(again.source_key)).source_key == again.source_key


async def test_a_broken_file_keeps_the_old_agents(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(SMALL.format(model="one"))
    registry = await registry_of(FileSource(path, supplies()))
    path.write_text("agents:\n  root:\n    modle: x/two\n")
    (told,) = await registry.refresh()
    assert isinstance(told, Broken) and told.serving
    assert (
        told.problems[0] == f"{path}:3:5: agents.root.modle: unknown field; did you mean 'model'?"
    )
    assert registry.choose("root").agent.model.name == "x/one"
    path.write_text(SMALL.format(model="two"))
    await registry.refresh()
    assert registry.choose("root").agent.model.name == "x/two"
