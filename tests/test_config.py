"""Settings: who wins, and what cannot be meant."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.config import ListenAddress, load_config
from holdfast.core.policy import Policy
from holdfast.environment import COMMANDS, MARKS
from holdfast.errors import InvalidValue


def test_a_flag_beats_the_environment_which_beats_a_default() -> None:
    config = load_config({"listen": "127.0.0.1:1"}, {"HOLDFAST_LISTEN": "127.0.0.1:2"}, ())
    assert config.listen.port == 1
    config = load_config({}, {"HOLDFAST_LISTEN": "[::1]:2"}, ("a.yaml",))
    assert config.listen == ListenAddress(host="::1", port=2)
    assert config.sources == ("a.yaml",)
    config = load_config({}, {}, ())
    assert config.listen == ListenAddress(host="127.0.0.1", port=8484)
    assert config.sources == ("demo",)
    assert {each.origin for each in config.origins} == {"default"}


def test_what_else_can_be_set() -> None:
    config = load_config(
        {},
        {
            "HOLDFAST_TURN_POLICY": "disconnect=keep",
            "HOLDFAST_CONVERSATION_HEADERS": "X-Mine, x-yours",
            "HOLDFAST_MODEL_ALIASES": "gpt-4o=butler, o1=thinker",
            "HOLDFAST_TURN_DEADLINE_S": "30",
            "HOLDFAST_LEASE_TTL_S": "5",
            "HOLDFAST_SOURCES": "a.yaml b.yaml",
            "HOLDFAST_ALLOWED_HOSTS": "Agents.Example",
            "HOLDFAST_BUSY_STATUS": "400",
            "HOLDFAST_REMOTE_SOURCES": "trusted",
        },
        (),
    )
    assert config.turn_policy == Policy(disconnect="keep")
    assert config.conversation_headers == ("x-conversation-id", "x-mine", "x-yours")
    assert dict(config.model_aliases) == {"gpt-4o": "butler", "o1": "thinker"}
    assert config.turn_deadline_s == 30
    assert config.lease_ttl_s == 5
    assert config.trust_remote and not load_config({}, {}, ()).trust_remote
    assert config.busy_status == 400
    assert (
        load_config({"busy_status": "409"}, {"HOLDFAST_BUSY_STATUS": "400"}, ()).busy_status == 409
    )
    assert config.sources == ("a.yaml", "b.yaml")
    assert config.hosts is not None and {"localhost", "agents.example"} <= config.hosts


def test_who_has_to_show_a_key_and_who_can_reach_us() -> None:
    near, far = load_config({}, {}, ()), load_config({"listen": "0.0.0.0:80"}, {}, ())
    assert (near.auth, near.listen.is_loopback) == ("auto", True)
    assert (far.auth, far.listen.is_loopback, far.hosts) == ("auto", False, None)
    assert load_config({"auth": "off"}, {"HOLDFAST_AUTH": "required"}, ()).auth == "off"


def test_commands_are_confined_where_others_can_reach_them() -> None:
    assert load_config({}, {}, ()).sandbox == "auto"
    assert load_config({"listen": "0.0.0.0:80"}, {}, ()).sandbox == "required"
    assert load_config({"listen": "0.0.0.0:80"}, {"HOLDFAST_SANDBOX": "off"}, ()).sandbox == "off"
    assert (
        load_config({"sandbox": "required"}, {"HOLDFAST_SANDBOX": "off"}, ()).sandbox == "required"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AUTH", "on"),
        ("REMOTE_SOURCES", "yes"),
        ("TENANT_TURNS", "0"),
        ("KEY_REQUESTS_PER_MINUTE", "many"),
        ("CORS_ORIGINS", "app.example"),
        ("TRUSTED_PROXIES", "proxy.example"),
        ("TLS_CERT", "cert.pem"),
        ("LOG_FORMAT", "xml"),
        ("LISTEN", "8484"),
        ("LISTEN", "localhost:99999"),
        ("TURN_POLICY", "disconnect=perhaps"),
        ("CONVERSATION_HEADERS", "x y:z"),
        ("MODEL_ALIASES", "gpt-4o"),
        ("BUSY_STATUS", "423"),
        ("TURN_DEADLINE_S", "soon"),
        ("BACKGROUND_TURNS", "0"),
        ("TURN_DEADLINE_S", "0"),
        ("LEASE_TTL_S", "0.5"),
        ("LEASE_TTL_S", "3600"),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: str) -> None:
    with pytest.raises(
        InvalidValue, match=SAYS.get(name, f"HOLDFAST_{name} takes .*, not {value!r}")
    ):
        load_config({}, {f"HOLDFAST_{name}": value}, ())


SAYS = {"TLS_CERT": "TLS needs both", "TURN_POLICY": "disconnect can be"}
"""Errors with words of their own."""


@pytest.mark.parametrize(
    ("text", "tenant", "allowed"),
    [
        ("", "acme", {"shop/a", "b"}),
        ("acme=shop/*", "acme", {"shop/a"}),
        ("acme=shop/*", "rival", {"shop/a", "b"}),
        ("acme=shop/* *=b", "rival", {"b"}),
        ("acme=shop/a,b", "acme", {"shop/a", "b"}),
        ("acme=nobody", "acme", set()),
    ],
)
def test_which_agents_a_tenant_may_use(text: str, tenant: str, allowed: set[str]) -> None:
    rules = load_config({"tenant_agents": text}, {}, ()).tenant_agents
    assert {each for each in ("shop/a", "b") if rules.allows(tenant, each)} == allowed


@pytest.mark.parametrize("text", ["acme", "acme=", "=shop", "acme=a acme=b", "acme=,"])
def test_a_rule_about_tenants_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="takes TENANT=AGENT"):
        load_config({"tenant_agents": text}, {}, ())


def test_an_empty_variable_means_its_default() -> None:
    """As `docker run -e HOLDFAST_AUTH` has it, and a compose file whose own variable is not set."""
    plain = load_config({}, {}, ())
    names = {f"HOLDFAST_{each.name.upper()}": "" for each in plain.origins}
    assert load_config({}, names, ()) == plain


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("HOLDFAST_STOER", "HOLDFAST_STORE"),
        ("HOLDFAST_TRUSTED_PROXY", "HOLDFAST_TRUSTED_PROXIES"),
        ("HOLDFAST_CORS_ORIGIN", "HOLDFAST_CORS_ORIGINS"),
        ("HOLDFAST_PORT", ""),
        ("HOLDFAST_ZZZZZZZZ", ""),
    ],
)
def test_a_variable_that_no_setting_has_is_told_with_the_nearest_name(
    variable: str, nearest: str
) -> None:
    (told,) = load_config({}, {variable: "x", "HOLDFAST_LISTEN": "[::1]:2"}, ()).unknown
    assert (told.variable, told.nearest) == (variable, nearest)
    shown = CliRunner().invoke(main, ["serve", "--print-config"], env={variable: "x"})
    assert f"{variable} is no setting" in shown.stderr and nearest in shown.stderr


def test_variables_that_others_set_are_not_told() -> None:
    """Kubernetes makes such variables for each Service, and ours is called holdfast."""
    others = {
        "HOLDFAST_SERVICE_HOST": "10.0.0.1",
        "HOLDFAST_SERVICE_PORT": "8484",
        "HOLDFAST_SERVICE_PORT_HTTP": "8484",
        "HOLDFAST_PORT": "tcp://10.0.0.1:8484",
        "HOLDFAST_PORT_8484_TCP": "tcp://10.0.0.1:8484",
        "HOLDFAST_PORT_8484_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
    }
    assert load_config({}, others | dict.fromkeys(COMMANDS | MARKS, "x"), ()).unknown == ()
