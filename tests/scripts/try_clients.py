#!/usr/bin/env python3
"""Tries programs that people use against `quire serve`, each as its documentation shows: what they read of answers must be what
curl reads.

usage: try_clients.py QUIRE [MODEL]

needs: pip install openai anthropic litellm langchain-openai prometheus_client; what is missing is named and fails. The last line is
the verdict, and the exit status says it, too."""
import asyncio
import json
import re
import subprocess
import sys
import traceback
import urllib.request
from typing import Literal

import pydantic

NAME = "guide"
QUESTION = [{"role": "user", "content": "What is a block table?"}]
TOOL = {"name": "weather", "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Aachen", "Bonn"]}}, "required": ["city"],
                       "additionalProperties": False}}


class Person(pydantic.BaseModel):
    name: pydantic.constr(max_length=10)
    age: pydantic.conint(ge=0, le=120)
    kind: Literal["reader", "writer"]


def start_server(quire, model):
    flags = ["--model", model] if model else []
    server = subprocess.Popen([quire, "serve", "--device", "cpu", "--port", "0", "--served-model-name", NAME, "--api-key", "key",
                               "--tool-call-parser", "hermes", "--temperature", "0", *flags], stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"http://[0-9.]+:[0-9]+", line)
        if found:
            return server, found.group()
    raise SystemExit("quire serve has ended: " + str(server.wait()))


def ask(url, body):
    """The plain answer, which others must give, too."""
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Authorization": "Bearer key"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def try_openai(url, expected):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="key")
    chat = client.chat.completions
    assert [m.id for m in client.models.list()] == [NAME]
    assert chat.create(model=NAME, messages=QUESTION, max_tokens=40).choices[0].message.content == expected
    chunks = list(chat.create(model=NAME, messages=QUESTION, max_tokens=40, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == expected
    assert chunks[-1].usage.completion_tokens > 0
    parsed = chat.parse(model=NAME, messages=QUESTION, response_format=Person, max_tokens=200).choices[0].message.parsed
    assert isinstance(parsed, Person)
    call = chat.create(model=NAME, messages=QUESTION, tools=[{"type": "function", "function": TOOL}], tool_choice="required",
                       max_tokens=200).choices[0]
    assert call.finish_reason == "tool_calls", call
    assert json.loads(call.message.tool_calls[0].function.arguments)["city"] in ("Aachen", "Bonn")
    response = client.responses.create(model=NAME, input=QUESTION[0]["content"], max_output_tokens=40)
    assert response.output_text == expected
    assert isinstance(client.responses.parse(model=NAME, input="Who?", text_format=Person, max_output_tokens=200).output_parsed, Person)
    try:
        chat.create(model="none", messages=QUESTION)
        raise AssertionError("a model that there is not answers")
    except openai.NotFoundError:
        pass


def try_openai_async(url, expected):
    import openai

    async def run():
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="key")

        async def one():
            stream = await client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=40, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])
        return await asyncio.gather(*[one() for _ in range(64)])
    assert asyncio.run(run()) == [expected] * 64


def try_anthropic(url, expected):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="key")
    message = client.messages.create(model=NAME, max_tokens=40, messages=QUESTION)
    assert message.content[0].text == expected
    with client.messages.stream(model=NAME, max_tokens=40, messages=QUESTION) as stream:
        assert "".join(stream.text_stream) == expected
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
    message = client.messages.create(model=NAME, max_tokens=200, messages=QUESTION, tools=[tool], tool_choice={"type": "any"})
    assert message.stop_reason == "tool_use" and message.content[-1].input["city"] in ("Aachen", "Bonn")


def try_litellm(url, expected):
    import litellm
    fields = {"model": "openai/" + NAME, "api_base": url + "/v1", "api_key": "key", "messages": QUESTION, "max_tokens": 40}
    assert litellm.completion(**fields).choices[0].message.content == expected
    assert "".join(c.choices[0].delta.content or "" for c in litellm.completion(**fields, stream=True)) == expected


def try_langchain(url, expected):
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(model=NAME, base_url=url + "/v1", api_key="key", max_tokens=40)
    assert model.invoke(QUESTION[0]["content"]).content == expected
    assert "".join(c.content for c in model.stream(QUESTION[0]["content"])) == expected
    model = ChatOpenAI(model=NAME, base_url=url + "/v1", api_key="key", max_tokens=200)
    assert isinstance(model.with_structured_output(Person, method="json_schema").invoke("Who?"), Person)


def try_prometheus(url, expected):
    from prometheus_client.parser import text_string_to_metric_families
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer key"})
    with urllib.request.urlopen(request) as response:
        families = {f.name: f for f in text_string_to_metric_families(response.read().decode())}
    assert families["vllm:generation_tokens"].samples[0].value > 0


def main():
    server, url = start_server(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    failed = 0
    try:
        expected = ask(url, {"messages": QUESTION, "max_tokens": 40})
        for test in (try_openai, try_openai_async, try_anthropic, try_litellm, try_langchain, try_prometheus):
            try:
                test(url, expected)
                print("passed:", test.__name__)
            except Exception:
                failed += 1
                print("failed:", test.__name__)
                traceback.print_exc()
    finally:
        server.terminate()
        print("server: exit status", server.wait(60))
    print("failed" if failed else "passed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
