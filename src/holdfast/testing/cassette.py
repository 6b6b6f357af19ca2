"""Records real traffic with a model's server once, and replays it ever after: for tests of your own agents.

    async with Cassette("tests/greeting.jsonl", upstream="https://api.openai.com") as cassette:
        model = OpenAIModel("gpt-5", base_url=f"{cassette.url}/v1", token_key="OPENAI_API_KEY")
        ...

The first time, when the file does not exist, requests are forwarded and the answers are recorded; from then
on the file answers, and nothing leaves the machine. Delete the file to record again.

1. No secret is recorded. Request headers are not recorded at all; of a response's headers, only those in `KEPT`. The
   API key of a request is removed wherever else it occurs, and so are keys in queries.
2. Time is not recorded: an answer is replayed at once, however long it took.
3. A request is identified by its method, path and body; the order of members in the JSON makes no difference. Equal
   requests get the recorded answers in their order, each answer once.
4. A request that was not recorded is refused, and fails the test: the block raises `CassetteMissed` at its end, with
   the difference to the most similar record.
"""

from __future__ import annotations

import difflib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import parse_qsl, urlencode

import aiohttp
import msgspec

from holdfast.core.codec import Value
from holdfast.errors import InvalidValue
from holdfast.models.failures import without_secrets
from holdfast.testing.upstream.replies import Reply, UpstreamRequest, refuses
from holdfast.testing.upstream.server import FakeUpstream, UpstreamConnection
from holdfast.wire.headers import RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY

KEPT = frozenset(
    {"content-type", *(each.name for each in (RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY))}
)
"""The response headers that clients act on."""

PASSED_ON_NOT = frozenset(
    "host connection content-length transfer-encoding accept-encoding".split()
)

SCRUBBED = "[scrubbed]"
_SECRET = re.compile(r"auth|key|secret|sig|token", re.IGNORECASE)
_DIFFERENCE_LINES = 60


class RecordedBody(Value):
    """Bytes; as text if they are text."""

    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, data: bytes) -> RecordedBody:
        try:
            return cls(text=data.decode())
        except UnicodeDecodeError:
            return cls(base64=b64encode(data).decode())

    @property
    def data(self) -> bytes:
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


class RecordedRequest(Value):
    """The parts of a request that identify it."""

    method: str
    path: str
    body: str
    """In canonical form if it is JSON."""


class RecordedAnswer(Value):
    status: int
    headers: tuple[tuple[str, str], ...]
    body: RecordedBody


class RecordedExchange(Value):
    """One line of a cassette."""

    request: RecordedRequest
    response: RecordedAnswer


class CassetteMissed(AssertionError):
    """A request that was not recorded."""


def asked(method: str, path: str, body: bytes, *, secrets: Iterable[str] = ()) -> RecordedRequest:
    """The identity of a request, without secrets."""
    route, mark, query = path.partition("?")
    if mark:
        pairs = parse_qsl(query, keep_blank_values=True)
        query = urlencode([(n, SCRUBBED if _SECRET.search(n) else v) for n, v in sorted(pairs)])
    text = without_secrets(_canonical(body), secrets)
    return RecordedRequest(method=method, path=f"{route}{mark}{query}", body=text)


def _canonical(body: bytes) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted").decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace")


def secrets_of(request: UpstreamRequest) -> list[str]:
    """The values in a request that must not be written anywhere."""
    values = [value for name, value in request.headers.items() if _SECRET.search(name)]
    values += (value.partition(" ")[2] for value in tuple(values))
    query = parse_qsl(request.path.partition("?")[2])
    values += (value for name, value in query if _SECRET.search(name))
    return sorted({each for each in values if len(each) >= 6}, key=len, reverse=True)


def difference(request: RecordedRequest, records: Iterable[RecordedExchange]) -> str:
    """The difference between a request and the most similar recorded one."""
    wanted = _lines(request)

    def likeness(record: RecordedExchange) -> float:
        return difflib.SequenceMatcher(None, _lines(record.request), wanted).ratio()

    nearest = max(records, key=likeness, default=None)
    if nearest is None:
        return "nothing is left to be played"
    lines = difflib.unified_diff(
        _lines(nearest.request), wanted, "the nearest record", "this request", lineterm="", n=1
    )
    return (
        "\n".join(list(lines)[:_DIFFERENCE_LINES]) or "it was recorded, and has been played already"
    )


def _lines(request: RecordedRequest) -> list[str]:
    body = request.body
    try:
        body = msgspec.json.format(body, indent=1)
    except msgspec.DecodeError:
        pass  # a body that is no JSON is compared as it is
    return [f"{request.method} {request.path}", *body.splitlines()]


class Cassette(FakeUpstream):
    """Replays a recording, or makes one. See the module."""

    def __init__(
        self,
        path: str | Path,
        *,
        upstream: str = "",
        mode: Literal["auto", "record", "play"] = "auto",
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """`upstream` is where requests go while recording: scheme and host. `auto` records if the file does not exist.

        Raises InvalidValue for a file that is no cassette, and for a recording without an `upstream`.
        """
        super().__init__(host=host, port=port)
        self.path = Path(path)
        self.recording = mode == "record" or (mode == "auto" and not self.path.exists())
        self.missed: list[str] = []
        """Requests that are not recorded, each with the difference to the most similar record."""
        if self.recording and not upstream:
            raise InvalidValue(f"there is no {self.path}: name the upstream to record it from")
        self._upstream = upstream.rstrip("/")
        self._records: list[RecordedExchange] = [] if self.recording else _read(self.path)
        self._left = list(self._records)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        if self.recording:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), trust_env=True
            )
        await super().start()

    async def close(self) -> None:
        await super().close()
        if self._session is not None:
            await self._session.close()
            _write(self.path, self._records)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
        if self.missed and error is None:
            raise CassetteMissed(f"{self.path} does not know this request:\n{self.missed[0]}")

    def __repr__(self) -> str:
        doing = "recording" if self.recording else f"{len(self._left)} left"
        return f"<Cassette {self.path} {doing}>"

    async def _answer(self, request: UpstreamRequest, line: UpstreamConnection) -> None:
        self.requests.append(request)
        secrets = secrets_of(request)
        known_by = asked(request.method, request.path, request.body, secrets=secrets)
        if self.recording:
            reply = await self._record(request, known_by, secrets)
        else:
            reply = self._play(known_by)
        await line.send_whole(reply)

    def _play(self, request: RecordedRequest) -> Reply:
        for record in self._left:
            if record.request == request:
                self._left.remove(record)
                return _reply(record.response)
        self.missed.append(difference(request, self._left or self._records))
        message = f"{self.path} does not know this request:\n{self.missed[-1]}"
        missing = refuses(404, code="cassette_missed", message=message)
        body = msgspec.json.encode({"error": missing.error})
        return msgspec.structs.replace(missing, body=body, content_type="application/json")

    async def _record(
        self, request: UpstreamRequest, known_by: RecordedRequest, secrets: list[str]
    ) -> Reply:
        assert self._session is not None, "it was started"
        headers = {n: v for n, v in request.headers.items() if n not in PASSED_ON_NOT}
        async with self._session.request(
            request.method,
            f"{self._upstream}{request.path}",
            data=request.body,
            headers={**headers, "Accept-Encoding": "identity"},
            allow_redirects=False,
        ) as response:
            body = await response.read()
        kept = ((name.lower(), value) for name, value in response.headers.items())
        answered = RecordedAnswer(
            status=response.status,
            headers=tuple((name, value) for name, value in kept if name in KEPT),
            body=_without(RecordedBody.of(body), secrets),
        )
        self._records.append(RecordedExchange(request=known_by, response=answered))
        return _reply(answered)


def _without(body: RecordedBody, secrets: list[str]) -> RecordedBody:
    if body.text is None:
        return body
    return RecordedBody(text=without_secrets(body.text, secrets))


def _reply(answered: RecordedAnswer) -> Reply:
    headers = dict(answered.headers)
    return Reply(
        status=answered.status,
        content_type=headers.pop("content-type", "application/octet-stream"),
        headers=tuple(headers.items()),
        body=answered.body.data,
    )


def _read(path: Path) -> list[RecordedExchange]:
    decoder = msgspec.json.Decoder(RecordedExchange)
    try:
        return decoder.decode_lines(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidValue(f"{path} is no cassette: {error}") from error


def _write(path: Path, records: list[RecordedExchange]) -> None:
    """Write the whole file, or leave it as it was if the recording is interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    unfinished.replace(path)
