"""Instructor: an answer as a value, by a call of a tool, or as several; what is not valid is asked for again."""

import sys
from collections.abc import Iterable

import instructor
from openai import OpenAI
from rounds import RETRIES, main
from weather import Weather


def talk(here):
    several = "parallel" in sys.argv[2]
    mode = instructor.Mode.PARALLEL_TOOLS if several else instructor.Mode.TOOLS
    sdk = OpenAI(
        base_url=here.base_url,
        api_key="any",
        default_headers=here.headers or None,
        max_retries=RETRIES,
    )
    client = instructor.from_openai(sdk, mode=mode)
    options = {
        "model": "root",
        "messages": [{"role": "user", "content": "Weather in Oslo?"}],
        "max_retries": 2,
    }
    if several:
        found = client.chat.completions.create(response_model=Iterable[Weather], **options)
        here.answers += [each.model_dump() for each in found]
        return
    if here.streamed:
        *_, found = client.chat.completions.create_partial(response_model=Weather, **options)
    else:
        found = client.chat.completions.create(response_model=Weather, **options)
    here.answers.append(found.model_dump())


main(talk)
