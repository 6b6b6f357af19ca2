"""The `llm` command, with a model file that names the server. Its own log says what it saw."""

import json
import os
import subprocess
import sys
from pathlib import Path

import llm
from telling import TRIP, main

MODEL = {
    "model_id": "holdfast",
    "model_name": "root",
    "headers": TRIP,
    "supports_tools": True,
    "supports_schema": True,
}

TOOL = """
from pathlib import Path

def get_weather(city: str) -> str:
    "The weather in a city."
    Path("ran").open("a").write(city + "\\n")
    return f"rain in {city}"
"""


def set_up(base_url, **headers):
    """What a user writes once."""
    home = Path("llm-home").absolute()
    home.mkdir()
    model = {**MODEL, "api_base": base_url, "headers": {**TRIP, **headers}}
    (home / "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
    os.environ["LLM_USER_PATH"] = str(home)


def run(*arguments):
    program = Path(sys.executable).parent / "llm"
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def prompt(*arguments):
    done = run("-m", "holdfast", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def last_logged():
    return json.loads(run("logs", "-n", "1", "--json").stdout)[0]


def conversation(base_url):
    set_up(base_url)
    said = ("My name is Ada.", "What is my name?")
    return {"answers": [prompt("--no-stream", text) for text in said]}


def resending(base_url):
    """`--continue` tells the model file's server what the log of `llm` holds."""
    set_up(base_url)
    kind = ("--system", "Be kind.")
    answers = [prompt(*kind, "one")]
    answers += [prompt(*kind, "--continue", text) for text in ("two", "three")]
    return {"answers": answers}


def stream(base_url):
    """As a library, since a pipe does not show the pieces."""
    set_up(base_url)
    response = llm.get_model("holdfast").prompt("one")
    pieces = list(response)
    usage = response.usage()
    return {
        "answers": [response.text()],
        "pieces": pieces,
        "finish": response.response_json["finish_reason"],
        "usage": [usage.input, usage.output],
    }


def with_tool(*prompts):
    """Each is a list of arguments; what was answered in the end, and what the tool was asked."""
    answers = []
    for arguments in prompts:
        prompt("--functions", TOOL, *arguments)
        answers.append(last_logged()["response"])
    ran = [{"city": line} for line in Path("ran").read_text().splitlines()]
    return {"answers": answers, "ran": ran}


def tools(base_url):
    set_up(base_url)
    return with_tool(["--no-stream", "Weather in Oslo?"], ["--no-stream", "And tomorrow?"])


def tools_streamed(base_url):
    set_up(base_url)
    return with_tool(["Weather in Oslo and Rome?"], ["--continue", "And tomorrow?"])


def typed(base_url):
    set_up(base_url)
    return {"typed": json.loads(prompt("--schema", "city, degrees int", "Weather in Oslo?"))}


def broken_stream(base_url):
    set_up(base_url)
    answers, failures = [], []
    for text in ("one", "two", "two"):
        done = run("-m", "holdfast", text)
        if done.returncode:
            failures.append({"code": done.stderr, "before": done.stdout})
        else:
            answers.append(done.stdout.removesuffix("\n"))
    return {"answers": answers, "failures": failures}


def keyed(base_url):
    set_up(base_url, **{"Idempotency-Key": "order-7"})
    return {"answers": [prompt("one"), prompt("one")]}


main(globals())
