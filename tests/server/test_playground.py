"""The playground: its files, the endpoints it asks beside OpenAI's, and itself in a browser.

The browser tests are skipped where there is no Chromium with its chromedriver.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import Browser, browser, missing
from one_server import KEY, Served

from structgen.server.routes import library

AUTH = {"Authorization": f"Bearer {KEY}"}
LABEL = {"enum": ["red", "green"]}


@pytest.fixture(scope="module")
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.root, headers=AUTH, timeout=60) as made:
        yield made


# -- files ------------------------------------------------------------------------------------


def test_the_page_asks_nobody_but_its_server(served: Served) -> None:
    page = httpx.get(f"{served.root}/")  # without a key
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    used = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert "/playground/app.js" in used
    for path in set(used) - {"/docs"}:
        assert httpx.get(served.root + path).status_code == 200, path
    for file in library.FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        foreign = set(re.findall(r"https?://[^\s\"'`)<]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not foreign, file
        for name in re.findall(r'from "\./([a-z]+\.js)"', text):
            kind = httpx.get(f"{served.root}/playground/{name}").headers["content-type"]
            assert kind.startswith("text/javascript")
    # Nothing in the page itself that its policy would not let run.
    assert not re.search(r"<script>|<style>| on[a-z]+=| style=", page.text)


def test_only_the_files_of_the_page_are_sent(served: Served) -> None:
    for name in ("..%2fapp.py", "app.py", "%2e%2e/app.py", ".", "no.js"):
        assert httpx.get(f"{served.root}/playground/{name}").status_code == 404, name
    icon = httpx.get(f"{served.root}/favicon.ico")
    assert icon.headers["content-type"] == "image/svg+xml"


# -- traces -----------------------------------------------------------------------------------


def asked(**more: Any) -> dict[str, Any]:
    return {
        "model": "small",
        "messages": [{"role": "user", "content": "Which colour is grass?"}],
        "grammar": ["red", "green"],
        "grammar_type": "choice",
        "max_tokens": 20,
        "trace": True,
        **more,
    }


def test_a_stream_tells_what_happened_at_each_token(http: httpx.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"c": LABEL},
        "required": ["c"],
        "additionalProperties": False,
    }
    body = asked(
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    )
    del body["grammar"], body["grammar_type"]
    steps: dict[int, Any] = {}
    text = ""
    with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content", "")
                steps |= {step["index"]: step for step in choice.get("trace", [])}
    assert list(steps) == list(range(len(steps)))
    data = b"".join(bytes(step["bytes"]) for step in steps.values() if not step["is_end"])
    assert data.decode() == text
    assert {step["path"] for step in steps.values()} <= {"$", "$.c"}
    assert any(step["is_forced"] and step["allowed"] == 1 for step in steps.values())
    chosen = next(step for step in steps.values() if not step["is_forced"])
    assert chosen["allowed"] > 1
    assert chosen["top"][0]["is_allowed"]
    assert chosen["logprob"] <= 0
    assert len(chosen["own_top"]) == 5
    whole = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert [one["token_id"] for one in whole["trace"]] == [
        one["token_id"] for one in steps.values()
    ]
    plain = http.post("/v1/chat/completions", json={**body, "trace": False}).json()
    assert "trace" not in plain["choices"][0]


def test_how_sure_the_model_is_of_choices(http: httpx.Client) -> None:
    body = asked(abstain_below=1e-9)
    whole = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    sure = whole["confidence"]["$"]
    by_value = {one["value"]: one["probability"] for one in sure["alternatives"]}
    assert by_value[whole["message"]["content"]] == sure["probability"]
    assert sum(by_value.values()) == pytest.approx(1, abs=1e-3)
    with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        pieces = [json.loads(line[6:]) for line in answer.iter_lines() if line[:7] == "data: {"]
    (told,) = [c["confidence"] for p in pieces for c in p["choices"] if "confidence" in c]
    assert told["$"]["probability"] == pytest.approx(sure["probability"], abs=1e-3)


def test_why_a_token_was_barred(http: httpx.Client) -> None:
    trace = http.post("/v1/chat/completions", json=asked()).json()["choices"][0]["trace"]
    place = {
        "model": "small",
        "grammar": ["red", "green"],
        "grammar_type": "choice",
        "before": [],
        "token": "blue",
        "chosen": trace[0]["token_id"],
    }
    reason = http.post("/v1/grammars/explain", json=place).json()["reason"]
    assert reason.startswith("'blue' was not allowed: 'b', its byte 1, is refused")
    assert reason.endswith("there may come 'g' or 'r'.")
    free = {"before": [], "token": 5, "chosen": 4}
    assert "free text" in http.post("/v1/grammars/explain", json=free).json()["reason"]
    for wrong, param in (
        ({"before": [10**9]}, "before"),
        ({"before": [trace[0]["token_id"]] * 9}, "before"),
        ({"token": 10**9}, "token"),
        ({"chosen": -1}, "chosen"),
        ({"token": None}, "token"),
        ({"foo": 1}, "foo"),
        ({"model": "none"}, "model"),
        ({"grammar_type": "regex", "grammar": "("}, "grammar"),
    ):
        answer = http.post("/v1/grammars/explain", json={**place, **wrong})
        assert answer.status_code == (404 if param == "model" else 400), wrong
        assert answer.json()["error"]["param"] == param, answer.text


# -- grammars ---------------------------------------------------------------------------------


def test_the_library_of_grammars(http: httpx.Client) -> None:
    listed = http.get("/v1/grammars").json()["data"]
    assert {"id": "csv", "description": "Comma-separated values (RFC 4180)."} in listed
    one = http.get("/v1/grammars/csv").json()
    found = http.post(
        "/v1/grammars/check", json={"grammar": one["grammar"], "grammar_type": one["grammar_type"]}
    ).json()
    assert found["valid"]
    for name in ("none", "..%2f..%2fpyproject"):
        assert http.get(f"/v1/grammars/{name}").status_code == 404


def test_a_picture_of_a_small_regex(http: httpx.Client) -> None:
    made = http.post("/v1/grammars/picture", json={"regex": "a[^b]*c?"}).json()
    assert not made["states"][0]["accepting"]
    assert made["is_whole"]
    assert {"from": 0, "to": 1, "label": "a"} in made["edges"]
    large = http.post("/v1/grammars/picture", json={"regex": "(ab){100}"}).json()
    assert not large["is_whole"]
    assert len(large["states"]) == 60
    for wrong in ("(", "(a)\\1", "a" * 2001, ""):
        answer = http.post("/v1/grammars/picture", json={"regex": wrong})
        assert answer.status_code == 400, wrong
        assert answer.json()["error"]["param"] == "regex"
    huge = http.post("/v1/grammars/picture", json={"regex": "[a-z]{9999999}(a|b){99999}x"})
    assert not huge.json()["is_whole"]


# -- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(served: Served) -> Iterator[Browser]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with browser() as made:
        made.size(1280, 900)
        made.open(f"{served.root}/")
        made.wait("!document.querySelector('#key-box').hidden")
        made.type("#key", f"{KEY}\ue004")
        made.wait("document.querySelector('#model').value === 'small'")
        yield made
        assert made.errors() == []  # its policy among them


def ended(page: Browser) -> str:
    page.wait("document.querySelector('#stop').disabled")
    assert page.js("return document.querySelector('#error').hidden"), page.text("#error")
    return page.text("#value-state")


def test_a_schema_is_typed_run_and_looked_at(page: Browser) -> None:
    schema = {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green"]},
            "n": {"type": "integer", "maximum": 9},
        },
        "required": ["colour", "n"],
        "additionalProperties": False,
    }
    page.type("#schema", json.dumps(schema))
    page.wait("document.querySelector('#schema-note').textContent.startsWith('Can be enforced')")
    page.click("#run")
    page.wait("document.querySelectorAll('#tokens .t').length > 2")
    assert ended(page) == "valid JSON, whole"
    spans = "[...document.querySelectorAll('#tokens .t')]"
    parts = page.js(
        f"return {spans}.map(span => span.classList.contains('end') ? '' : span.textContent)"
    )
    value = json.loads("".join(parts))
    assert value["colour"] in ("red", "green")
    assert value["n"] <= 9
    assert page.text("#value").count(value["colour"]) == 1
    assert page.js(f"return {spans}.some(span => span.classList.contains('forced'))")
    # Pointed at, a token tells what was allowed, and why what the model wanted was not.
    at = page.js(
        f"return {spans}.findIndex(span => span.textContent.includes({value['colour'][0]!r}))"
    )
    page.hover(f"#tokens [data-i='{at}']")
    page.wait(f"document.querySelector('#token').textContent.includes('{at + 1} of ')")
    if page.js("return document.querySelector('#token .bar.no') !== null"):
        page.click("#token .bar.no")
        page.wait("document.querySelector('#token .why').textContent.includes('not allowed')")
    # By keys.
    page.js("document.querySelector('#tokens [tabindex=\"0\"]').focus()")
    page.press("End", "ArrowRight")
    last = len(parts)
    page.wait(f"document.querySelector('#token').textContent.includes('{last} of {last}')")


def test_every_kind_of_form_runs(page: Browser) -> None:
    expected = {
        "regex": "matches",
        "choice": "one of the choices",
        "grammar": "of the grammar",
        "tools": "valid calls",
    }
    page.type("#max-tokens", "120")
    for kind, state in expected.items():
        page.js("document.querySelector(`#types input[value=${arguments[0]}]`).click()", kind)
        page.click("#run")
        assert ended(page) == state, kind
    page.js("document.querySelector('#types input[value=regex]').click()")
    page.type("#regex", "[ab]+c")
    page.wait("document.querySelector('#automaton svg title')?.textContent.includes('by a b')")
    page.js(
        "const one = document.querySelector('#regex-examples'); one.value = 'An IP address';"
        "one.dispatchEvent(new Event('change'))"
    )
    page.wait("document.querySelector('#automaton svg title')?.textContent.includes('23')")
    drawn, shown = page.js(
        "const figure = document.querySelector('#automaton');"
        "return [figure.scrollWidth, figure.clientWidth]"
    )
    assert drawn <= shown


def test_a_tie_has_no_winner_and_small_numbers_are_read_at_a_glance(page: Browser) -> None:
    shown = page.js(
        """
        const { showAnswers } = await import("/playground/results.js");
        const option = (value, probability) => ({ value, probability });
        showAnswers({ asked: { body: { questions: [] } } }, { answers: [
          { type: "predicate", name: "tied", probability: .5 },
          { type: "choice", name: "nearly", choice: "a", confidence: 1e-14,
            probabilities: [option("a", .4 + 1e-9), option("b", .4 - 1e-9), option("c", .2)] },
          { type: "predicate", name: "won", probability: .9 },
        ] });
        const answers = [...document.querySelectorAll("#value .answer")];
        const bold = one => [...one.querySelectorAll(".bar.it code")].map(name => name.textContent);
        const said = answers.map(one => [bold(one), one.textContent]);
        document.querySelector("#value").replaceChildren();
        return said;
        """
    )
    assert [bold for bold, _ in shown] == [[], [], ["yes"]]
    assert ["tie" in text.removeprefix("tied") for _, text in shown] == [True, True, False]
    assert "confidence <0.01%" in shown[1][1]


def test_tokens_are_there_again_after_questions(page: Browser) -> None:
    panels = """return ["tokens-card", "token-card"].map(id =>
        document.getElementById(id).getBoundingClientRect().height > 0)"""
    for kind, seen in (("decisions", False), ("regex", True)):
        page.js("document.querySelector(`#types input[value=${arguments[0]}]`).click()", kind)
        assert page.js(panels) == [seen, seen], kind
        page.click("#run")
        page.wait("!document.querySelector('#stop').disabled")
        page.wait("document.querySelector('#value').textContent")
        ended(page)
        assert page.js(panels) == [seen, seen], kind


def test_the_caret_of_a_regex_error_is_under_its_character(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=regex]').click()")
    page.type("#regex", "ab)cd")
    page.wait("document.querySelector('#regex-note.bad')?.textContent.includes('^')")
    place = """
        const node = document.querySelector("#regex-note").firstChild;
        const place = mark => {
          const range = document.createRange();
          const at = node.data.indexOf(mark);
          range.setStart(node, at);
          range.setEnd(node, at + 1);
          const { x, y } = range.getBoundingClientRect();
          return [x, y];
        };
        return [place(")cd"), place("^")]
    """
    (x, y), (caret_x, caret_y) = page.js(place)
    assert caret_y > y
    assert abs(caret_x - x) < 1


def test_a_narrow_screen_has_no_sideways_scrolling(page: Browser) -> None:
    page.size(360, 740)
    kinds = page.js("return [...document.querySelectorAll('#types input')].map(one => one.value)")
    for kind in kinds:
        page.js("document.querySelector(`#types input[value=${arguments[0]}]`).click()", kind)
        assert page.js("return document.documentElement.scrollWidth") <= 360, kind
    page.js("document.querySelector('#types input[value=json_schema]').click()")
    page.click("#run")
    assert ended(page) == "valid JSON, whole"
    assert page.js("return document.documentElement.scrollWidth") <= 360
    page.size(1280, 900)


def test_the_same_call_is_code_that_runs(page: Browser, served: Served) -> None:
    said: dict[str, str] = {}
    for kind in ("json_schema", "regex", "choice", "grammar", "tools", "decisions", "free"):
        page.js("document.querySelector(`#types input[value=${arguments[0]}]`).click()", kind)
        for language in ("structgen", "openai", "curl"):
            page.js(
                "document.querySelector(`#code-kinds input[value=${arguments[0]}]`).click()",
                language,
            )
            code = said[f"{kind} {language}"] = page.text("#code")
            if language != "curl":
                compile(code, kind, "exec")
    environment = {**os.environ, "STRUCTGEN_API_KEY": KEY}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    for which, is_right in (
        ("decisions openai", lambda text: text.count("probability") > 3),
        ("tools openai", lambda text: "name='weather'" in text),
        ("tools structgen", lambda text: "name='weather'" in text),
        ("choice structgen", lambda text: text in ("billing", "technical", "sales", "other")),
    ):
        made = subprocess.run(
            [sys.executable, "-c", said[which]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert made.returncode == 0, made.stderr
        assert is_right(made.stdout.strip()), (which, made.stdout)
    if shutil.which("curl"):
        made = subprocess.run(
            ["bash", "-c", said["choice curl"]],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        answer = json.loads(made.stdout)["choices"][0]["message"]["content"]
        assert answer in ("billing", "technical", "sales", "other")


def test_errors_are_the_servers_with_the_field(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=json_schema]').click()")
    page.type("#schema", '{"type": "object", "properties": {"x": {"type": "strin"}}}')
    page.wait("document.querySelector('#schema-note.bad') !== null")
    page.click("#run")
    page.wait("!document.querySelector('#error').hidden")
    told = page.text("#error")
    assert told.count("response_format.json_schema.schema.properties.x") == 1
    page.type("#schema", "{")
    page.click("#run")
    page.wait("document.querySelector('#error').textContent.includes('no JSON')")


def test_no_answer_stands_beside_a_form_that_it_does_not_have(page: Browser) -> None:
    page.type("#schema", '{"enum": ["red", "green"]}')
    page.click("#run")
    assert ended(page) == "valid JSON, whole"
    assert page.text("#value")
    for wrong in ("{", '{"type": "strin"}'):
        page.type("#schema", '{"enum": ["red", "green"]}')
        page.click("#run")
        assert ended(page) == "valid JSON, whole"
        page.type("#schema", wrong)
        page.wait("document.querySelector('#schema-note.bad') !== null")
        page.wait("document.querySelector('#value').textContent === ''")
        assert page.js("return document.querySelector('#tokens').children.length") == 0


def test_a_system_prompt_is_part_of_the_call(page: Browser) -> None:
    page.js("document.querySelector('#system-box').open = true")
    page.type("#system", "Answer in one word.")
    page.js("document.querySelector('#types input[value=choice]').click()")
    page.wait("document.querySelector('#code').textContent.includes('Answer in one word.')")
    page.click("#run")
    assert ended(page) == "one of the choices"
    page.js(
        "const one = document.querySelector('#system'); one.value = '';"
        "one.dispatchEvent(new Event('input', { bubbles: true }))"
    )


def test_a_key_is_asked_for_once(served: Served, page: Browser) -> None:
    page.open(f"{served.root}/")
    page.wait("document.activeElement.id === 'key'")
    assert page.js("return document.querySelector('#error').hidden")
    assert page.text("#schema-note") == ""
    assert "load(" not in page.text("#code")
    page.type("#key", f"wrong{KEY}\ue004")
    page.wait("document.querySelector('#key').getAttribute('aria-invalid') === 'true'")
    page.js("document.querySelector('#key').value = ''")
    page.type("#key", f"{KEY}\ue004")
    page.wait("document.querySelector('#model').value === 'small'")
    assert page.js("return document.querySelector('#key').getAttribute('aria-invalid')") is None


def test_the_first_example_is_one_that_a_small_model_does_well(page: Browser) -> None:
    page.wait("document.querySelector('#schema-note').textContent.startsWith('Can be enforced')")
    page.click("#run")
    assert ended(page) == "valid JSON, whole"
    value = page.text("#value")
    assert all(fact in value for fact in ('"Lena Vogt"', "34", '"doctor"', '"Oslo"'))


def test_the_page_takes_the_systems_colours(page: Browser) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    page.prefer("light")
    light = page.js(colour)
    page.prefer("dark")
    dark = page.js(colour)
    assert light != dark
    page.click("#theme")  # light, whatever the system has
    assert page.js(colour) == light
    page.click("#theme")
    page.prefer("light")
    assert page.js(colour) == dark
    page.click("#theme")
