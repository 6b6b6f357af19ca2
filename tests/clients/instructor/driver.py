"""Instructor: an answer as a value, by a call of a tool; what is not valid is asked for again."""

import instructor
from openai import OpenAI
from rounds import main
from weather import Weather


def talk(here):
    client = instructor.from_openai(
        OpenAI(base_url=here.base_url, api_key="any", default_headers=here.headers or None)
    )
    options = {
        "model": "root",
        "messages": [{"role": "user", "content": "Weather in Oslo?"}],
        "max_retries": 2,
    }
    if here.streamed:
        *_, found = client.chat.completions.create_partial(response_model=Weather, **options)
    else:
        found = client.chat.completions.create(response_model=Weather, **options)
    here.answers.append(found.model_dump())


main(talk)
