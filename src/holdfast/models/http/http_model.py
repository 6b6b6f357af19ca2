"""A model over HTTP, for any wire: connections, API keys, timeouts and errors.

1. An answer ends normally only if the server said how it ended. A stream that merely stops has broken off.
2. Leaving early closes the connection at once; a half-read connection is never reused.
3. The API key comes from the environment, and appears in no error, log or repr.

Three silences are bounded: until connected, until the first byte, and between two bytes. A slow consumer of the
answer does not count as silence.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TypedDict
from urllib.parse import urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.deltas import Delta
from holdfast.errors import InvalidValue, without_frames
from holdfast.libraries import aiohttp, want_http
from holdfast.models import failures
from holdfast.models.failures import about_thoughts
from holdfast.models.http.connections import Connections, in_pieces, proxy_from_environment
from holdfast.models.http.request_headers import request_headers
from holdfast.models.model import CountRequest, Dialect, ModelFailed, Prompt, Wire
from holdfast.observe.events import trace_headers, warn
from holdfast.wire.headers import CLIENT_REQUEST_ID, RETRY_AFTER
from holdfast.wire.openai.chat.chunks import ErrorObject
from holdfast.wire.prefix_digest import PrefixDigest, Prefixes
from holdfast.wire.stream_parser import GarbledStream, StreamFailure

REUSE_WAIT_S = 0.02
"""After the last event, how long the response may take to end for its connection to be reused."""

ERROR_BODY_BYTES_MAX = 64 * 1024


class Timeouts(Value):
    """The longest allowed silences, in seconds."""

    connect_s: float = limits.upstream_connect_s
    first_byte_s: float = limits.upstream_first_byte_s
    between_bytes_s: float = limits.upstream_between_bytes_s
    """Not more than `first_byte_s`: no model pauses longer in the middle than at the start."""
    after_finish_s: float = limits.upstream_after_finish_s


class Access(TypedDict, total=False):
    """Options for reaching a server, the same for every wire. All of them have defaults."""

    environ: Mapping[str, str]
    """Where API keys are looked up; by default the process's environment."""
    timeouts: Timeouts
    connections: Connections | None
    """A shared pool stays open on `close`; None: a pool of its own."""
    proxy: str | None
    """None: as the environment says. Empty: no proxy."""
    secrets: tuple[str, ...]
    """Values that no error may show, besides the API key."""
    now_s: Callable[[], float]


class HttpModel:
    """A model that is called over HTTP and streams its answer, on any wire.

    Safe to share: it holds no state of a conversation.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        name: str,
        base_url: str,
        path: str,
        token_key: str,
        key_header: str = "Authorization",
        environ: Mapping[str, str] = os.environ,
        headers: Mapping[str, str] | None = None,
        counting: CountRequest | None = None,
        taken_for: str = "",
        timeouts: Timeouts = Timeouts(),  # noqa: B008
        connections: Connections | None = None,
        proxy: str | None = None,
        secrets: tuple[str, ...] = (),
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`path` is the path of requests below `base_url`. `token_key` names the environment variable that
        holds the API key, `key_header` the header that carries it; an empty name means no key.
        `counting` asks the server for a token count, if it offers one. For the rest see `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        if timeouts.between_bytes_s > timeouts.first_byte_s:
            raise InvalidValue("between_bytes_s has to be at most first_byte_s")
        self.name = name
        self.dialect: Dialect = wire.dialect
        self.taken_for = taken_for
        """The family whose rules hold for a model that is not in its vendor's table; empty for one that is."""
        self.knows = wire.knows
        self._wire = wire
        self._host = _checked_host(base_url)
        self._url = f"{base_url}{path}"
        self._counting = counting
        self._count_url = f"{base_url}{counting.path}" if counting else ""
        self._proxy = proxy if proxy is not None else proxy_from_environment(base_url)
        self._headers, hidden = request_headers(
            headers or {}, token_key, environ, key_header=key_header, secrets=secrets
        )
        self._secrets = (*hidden, *filter(None, [urlsplit(self._proxy or "").password]))
        self._timeouts = timeouts
        self._owned = connections is None
        self._connections = connections or Connections()
        self._now_s = now_s
        want_http()

    @cached_property
    def _timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=None,
            connect=self._timeouts.connect_s,
            sock_connect=self._timeouts.connect_s,
            sock_read=self._timeouts.first_byte_s,
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer; see `Model.stream`."""
        response, prompt = await self._ask(prompt)
        silence = _Silence(response.close, self._timeouts.first_byte_s)
        protocol = response.connection.protocol if response.connection is not None else None
        if protocol is not None:
            # From here on `_Silence` watches the time; aiohttp would set a timer for every token.
            protocol.read_timeout = None
            protocol.start_timeout()  # no timeout is set now, so this cancels the running timer
        failure: ModelFailed | None = None
        content = in_pieces(response)
        try:
            if response.content_type.endswith(("json", "html")):
                yield await self._whole(response, silence, prompt)
                return
            parser = self._wire.parser(prompt)
            try:
                while not parser.over and (piece := await silence.broken_by(content)):
                    if deltas := parser.feed(piece):
                        yield deltas
                    silence.allow(
                        self._timeouts.after_finish_s
                        if parser.finished
                        else self._timeouts.between_bytes_s
                    )
            except aiohttp.ClientError as error:
                failure = self._failure(error, silence)
            if parser.failure is not None:
                failure = self._failure(parser.failure, silence)
            # Once the server has said how its answer ended, only usage can still be lost.
            if not parser.finished:
                raise failure or _broke_off("it ended without saying how")
            if failure is None and not content.at_eof():
                await _use_again(response)
        finally:
            del failure
            silence.end()
            response.close()

    def openings(self, prompt: Prompt) -> Prefixes:
        """The digest of what a request says before its messages; see `BindingModel.openings`."""
        opening = self._wire.opening(prompt)
        return {} if opening is None else {self.dialect.name: PrefixDigest(opening)}

    @property
    def count_dialect(self) -> Dialect | None:
        return self._counting.dialect if self._counting else None

    async def count(self, prompt: Prompt) -> int:
        """The size of this prompt in tokens; see `TokenCounter.count`."""
        assert self._counting is not None, "a count needs a count_dialect"
        try:
            async with asyncio.timeout(limits.upstream_count_s):
                return await self._count(self._counting, prompt)
        except TimeoutError:
            failure = _timed_out(f"{self._host} gave no count in {limits.upstream_count_s:g} s")
        try:
            raise failure
        finally:
            del failure

    async def _count(self, counting: CountRequest, prompt: Prompt) -> int:
        response = await self._sent(self._count_url, partial(counting.body, prompt))
        silence = _Silence(response.close, self._timeouts.between_bytes_s)
        try:
            return counting.read(await _read(response, silence, bytes_max=ERROR_BODY_BYTES_MAX))
        except (aiohttp.ClientError, StreamFailure) as error:
            failure = self._failure(error, silence)
        finally:
            silence.end()
            response.close()
        try:
            raise failure
        finally:
            del failure

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        if self._owned:
            await self._connections.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._host}>"

    # ── requests ──

    async def _ask(self, prompt: Prompt) -> tuple[aiohttp.ClientResponse, Prompt]:
        """The response, and the prompt that it answers.

        A server that refuses a thought would refuse it for ever, so it is asked once more without thoughts.
        """
        try:
            return await self._asked(prompt), prompt
        except ModelFailed as failure:
            plain = self._wire.without_thoughts(prompt) if about_thoughts(failure) else None
            if plain is None:
                raise
            warn("model.thoughts_refused", model=self.name, why=failure.detail)
        return await self._asked(plain), plain

    async def _asked(self, prompt: Prompt) -> aiohttp.ClientResponse:
        return await self._sent(self._url, partial(self._wire.body, prompt), prompt.call_key)

    async def _sent(
        self, url: str, made: Callable[[], bytes], call_key: str = ""
    ) -> aiohttp.ClientResponse:
        """The response, once its head has arrived. Raises ModelFailed unless it is a success."""
        try:
            body = made()
        except InvalidValue as error:
            raise ModelFailed(str(error), reason="invalid_request_error") from error
        failure: ModelFailed
        try:
            response = await self._post(url, body, call_key)
        except aiohttp.ConnectionTimeoutError as error:
            without_frames(error)
            failure = _timed_out(
                f"no connection to {self._host} within {self._timeouts.connect_s:g} s"
            )
        except aiohttp.ServerTimeoutError as error:
            without_frames(error)
            failure = _timed_out(
                f"{self._host} gave no answer in {self._timeouts.first_byte_s:g} s"
            )
        except (aiohttp.ClientError, OSError) as error:
            failure = self._unreachable(without_frames(error))
        else:
            if response.status == 200:
                return response
            raise await self._refused(response)
        # Not raised inside `except`: aiohttp's errors hold on to the request, and so to the API key.
        try:
            raise failure
        finally:
            del failure

    async def _post(self, url: str, body: bytes, call_key: str) -> aiohttp.ClientResponse:
        headers = {**self._headers, CLIENT_REQUEST_ID: call_key} if call_key else self._headers
        headers = {**headers, **trace_headers()}
        session = await self._connections.session()
        return await session.post(
            url,
            data=body,
            headers=headers,
            proxy=self._proxy or None,
            allow_redirects=False,
            timeout=self._timeout,
        )

    async def _refused(self, response: aiohttp.ClientResponse) -> ModelFailed:
        silence = _Silence(response.close, self._timeouts.between_bytes_s)
        try:
            body = await _read(response, silence, bytes_max=ERROR_BODY_BYTES_MAX)
        except (aiohttp.ClientError, GarbledStream):
            body = b""  # the status says enough
        finally:
            silence.end()
            response.close()
        error, hint_s = self._wire.error(body)
        if 300 <= response.status < 400:
            to = response.headers.get("location", "elsewhere")
            error = ErrorObject(message=f"it redirects to {to}; set base_url to where it is")
        headers = {name.lower(): value for name, value in response.headers.items()}
        if hint_s is not None:
            headers.setdefault(RETRY_AFTER.name, f"{hint_s:g}")
        return failures.refused(
            response.status, self._without_secrets(error), headers, now_s=self._now_s()
        )

    # ── answers ──

    async def _whole(
        self, response: aiohttp.ClientResponse, silence: _Silence, prompt: Prompt
    ) -> Sequence[Delta]:
        """The deltas of an answer from a server that does not stream."""
        try:
            if response.content_type.endswith("html"):
                raise GarbledStream("a web page")
            body = await _read(response, silence, bytes_max=limits.upstream_body_bytes_max)
            return self._wire.whole(body, prompt)
        except (aiohttp.ClientError, StreamFailure) as error:
            failure = self._failure(error, silence)
        try:
            raise failure
        finally:
            del failure

    # ── failures ──

    def _failure(
        self, error: aiohttp.ClientError | StreamFailure, silence: _Silence
    ) -> ModelFailed:
        without_frames(error)
        if silence.too_long:
            return _timed_out(f"{self._host} fell silent for {silence.allowed_s:g} s")
        if isinstance(error, GarbledStream):
            said = failures.bounded(self._without_secrets(error.error).message or "")
            return ModelFailed(
                f"what {self._host} sent makes no sense: {said}",
                reason=failures.GARBLED,
                transient=True,
            )
        if isinstance(error, StreamFailure):
            said_ = self._without_secrets(error.error)
            return failures.refused(0, said_, {}, now_s=self._now_s())
        if isinstance(error, aiohttp.ServerTimeoutError):
            return _timed_out(f"{self._host} fell silent for {self._timeouts.first_byte_s:g} s")
        return _broke_off(f"the connection to {self._host} was lost")

    def _unreachable(self, error: Exception) -> ModelFailed:
        wrong = isinstance(error, aiohttp.ClientSSLError | aiohttp.InvalidURL)
        words = failures.without_secrets(str(error) or type(error).__name__, self._secrets)
        return ModelFailed(
            f"{self._host} cannot be reached: {failures.bounded(words)}",
            reason=failures.UNREACHABLE,
            transient=not wrong,
        )

    def _without_secrets(self, error: ErrorObject) -> ErrorObject:
        message = failures.without_secrets(error.message or "", self._secrets)
        return msgspec.structs.replace(error, message=message)


# ── silence ──────────────────────────────────────────────────────────────────────────────────


class _Silence:
    """Measures how long nothing arrives, and calls `when_too_long` when it is too long.

    One timer serves a whole stream: when it fires it checks the time of the last byte, so that a token costs
    a look at the clock and not a timer.
    """

    def __init__(self, when_too_long: Callable[[], None], allowed_s: float) -> None:
        self.allowed_s = allowed_s
        self.too_long = False
        self._when_too_long = when_too_long
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._listening = False
        self._timer = self._loop.call_at(self._since + allowed_s, self._look)

    async def broken_by(self, content: aiohttp.StreamReader) -> bytes:
        """The next bytes; empty at the end. Only the time spent waiting here counts as silence."""
        self._since = self._loop.time()
        self._listening = True
        try:
            return await content.readany()
        finally:
            self._listening = False

    def allow(self, seconds: float) -> None:
        """From now on, allow this much silence."""
        if seconds != self.allowed_s:
            self.allowed_s = seconds
            self._timer.cancel()
            self._timer = self._loop.call_at(self._loop.time() + seconds, self._look)

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        due = (self._since if self._listening else self._loop.time()) + self.allowed_s
        if due <= self._loop.time():
            self.too_long = True
            self._when_too_long()
        else:
            self._timer = self._loop.call_at(due, self._look)


async def _read(response: aiohttp.ClientResponse, silence: _Silence, *, bytes_max: int) -> bytes:
    """The whole body. Raises GarbledStream if it is too large."""
    body = bytearray()
    while piece := await silence.broken_by(response.content):
        body += piece
        if len(body) > bytes_max:
            raise GarbledStream(f"its answer is larger than {bytes_max} bytes")
    return bytes(body)


async def _use_again(response: aiohttp.ClientResponse) -> None:
    """Give the end of the response a moment to arrive: a connection that was read to its end is kept."""
    silence = _Silence(response.close, REUSE_WAIT_S)
    try:
        while await silence.broken_by(response.content):
            pass
    except aiohttp.ClientError:
        pass  # only a connection is lost
    finally:
        silence.end()


def _timed_out(detail: str) -> ModelFailed:
    return ModelFailed(detail, reason=failures.TIMEOUT, transient=True)


def _broke_off(detail: str) -> ModelFailed:
    return ModelFailed(
        f"the model broke off in the middle of its answer: {detail}",
        reason=failures.BROKE_OFF,
        transient=True,
    )


# ── checks at construction ───────────────────────────────────────────────────────────────────


def _checked_host(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValue(f"base_url has to be an http or https address, not {base_url!r}")
    if parts.username or parts.password:
        raise InvalidValue(
            "base_url must not hold credentials; name a variable in token_key instead"
        )
    return parts.netloc
