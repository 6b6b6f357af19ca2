"""Content blocks: what a prompt is made of, and what an editor is shown. From blocks to parts of a message and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TypeAlias, assert_never

from holdfast.core.codec import Value
from holdfast.core.items import Audio, File, Image, Inline, Part, Parts, Refusal, Text
from holdfast.errors import InvalidValue


class AcpValue(Value, rename="camel"):
    """A value of the protocol, whose names are in camel case."""


class AcpBlock(AcpValue, tag_field="type"):
    """A content block."""


class AcpText(AcpBlock, tag="text"):
    text: str


class AcpImage(AcpBlock, tag="image"):
    data: str
    """Base64."""
    mime_type: str
    uri: str | None = None


class AcpAudio(AcpBlock, tag="audio"):
    data: str
    mime_type: str


class AcpLink(AcpBlock, tag="resource_link"):
    """A file or page that the user points at."""

    uri: str
    name: str = ""


class Resource(AcpValue):
    """The content of a file that the editor sends along: text, or bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class AcpResource(AcpBlock, tag="resource"):
    resource: Resource


ContentBlock: TypeAlias = AcpText | AcpImage | AcpAudio | AcpLink | AcpResource
Prompt: TypeAlias = tuple[ContentBlock, ...]


def parts_of(prompt: Prompt) -> Parts:
    """The parts of the user's message. Raises InvalidValue for bytes that are not base64, and for audio."""
    return tuple(map(_part, prompt))


def _part(block: ContentBlock) -> Part:
    match block:
        case AcpText(text=text):
            return Text(text=text)
        case AcpImage(data=data, mime_type=kind):
            return Image(source=Inline(media_type=kind, data=_bytes(data)))
        case AcpLink(uri=uri, name=name):
            return Text(text=f"[{name or uri}]({uri})")
        case AcpResource(resource=Resource(text=str(text), uri=uri)):
            return Text(text=f"{uri}:\n```\n{text}\n```\n")
        case AcpResource(resource=Resource(blob=str(blob), uri=uri) as resource):
            kind = resource.mime_type or "application/octet-stream"
            held = Inline(media_type=kind, data=_bytes(blob))
            return File(source=held, name=uri.rpartition("/")[2])
        case AcpResource():
            raise InvalidValue("an embedded resource has text or a blob")
        case AcpAudio():
            raise InvalidValue("prompts with audio are not taken; initialize says so")
        case _:
            assert_never(block)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64 as error:
        raise InvalidValue(f"the data of a block is base64: {error}") from error


def blocks_of(parts: Parts) -> Prompt:
    """The blocks that show these parts."""
    return tuple(map(_block, parts))


def _block(part: Part) -> ContentBlock:
    match part:
        case Text(text=text) | Refusal(text=text):
            return AcpText(text=text)
        case Image(source=Inline(media_type=kind, data=data)):
            return AcpImage(data=b64encode(data).decode(), mime_type=kind)
        case Audio(transcript=text):
            return AcpText(text=text or "[audio]")
        case File(name=name):
            return AcpText(text=f"[{name or 'a file'}]")
        case Image():
            return AcpText(text="[an image]")
        case _:
            assert_never(part)
