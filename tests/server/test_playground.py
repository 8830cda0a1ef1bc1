"""The playground: its files, the endpoints it asks beside OpenAI's, and itself in a browser.

The browser tests are skipped where there is no Chromium with its chromedriver. ``playground`` in
``.ci/run`` has them from npm's registry and PyPI.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from browser import Browser, browser, missing
from one_server import KEY, Served

from structgen.insight.regex_picture import svg
from structgen.server.routes import library

AUTH = {"Authorization": f"Bearer {KEY}"}
LABEL = {"enum": ["red", "green"]}


# -- files ------------------------------------------------------------------------------------


def test_the_page_asks_nobody_but_its_server(served: Served) -> None:
    page = httpx.get(f"{served.root}/", timeout=60)  # without a key
    assert httpx.get(f"{served.root}/playground", timeout=60).content == page.content
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    used = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert "/playground/app.js" in used
    for path in set(used) - {"/docs"}:
        assert httpx.get(served.root + path, timeout=60).status_code == 200, path
    for file in library.FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        foreign = set(re.findall(r"https?://[^\s\"'`)<]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not foreign, file
        for name in re.findall(r'from "\./([a-z]+\.js)"', text):
            kind = httpx.get(f"{served.root}/playground/{name}", timeout=60).headers["content-type"]
            assert kind.startswith("text/javascript")
    # Nothing in the page itself that its policy would not let run.
    assert not re.search(r"<script>|<style>| on[a-z]+=| style=", page.text)


def test_only_the_files_of_the_page_are_sent(served: Served) -> None:
    for name in ("..%2fapp.py", "app.py", "%2e%2e/app.py", "no.js"):
        assert httpx.get(f"{served.root}/playground/{name}", timeout=60).status_code == 404, name
    icon = httpx.get(f"{served.root}/favicon.ico", timeout=60)
    assert icon.headers["content-type"] == "image/svg+xml"


def test_no_page_of_another_origin_frames_an_answer(served: Served) -> None:
    for path in ("/", "/docs", "/v1/models", "/none"):
        headers = httpx.get(served.root + path, timeout=60).headers
        assert headers["x-frame-options"] == "DENY", path
        assert headers["x-content-type-options"] == "nosniff", path


TEXTS = (
    "a\nb\\",
    "a\nb'",
    'a\n"""\\\'',
    "a\n'''\\",
    "\x1b[201~rm\n",
    "x\u202ey",
    "\\d\x7f",
    "[a-z]\\",
)


def in_node(program: str, argument: str) -> Any:
    """What a program prints as JSON. It may import the page's files."""
    made = subprocess.run(
        ["node", "--input-type=module", "-e", program, argument],
        cwd=library.FOLDER,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(made.stdout)


needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="there is no node on this machine"
)


@needs_node
def test_members_stay_where_they_were_typed() -> None:
    program = """
        import { withCurl, withOpenai, withStructgen } from "./calls.js";
        import { read, write } from "./values.js";
        const schema = read(process.argv[1]);
        const asked = { kind: "json_schema", body: { model: "m", messages: [],
          response_format: { type: "json_schema", json_schema: { name: "a", schema } } } };
        const choices = [{ value: "b" }, { value: "2" }, { value: "1" }];
        const decisions = { kind: "decisions",
          body: { model: "m", input: "", questions: [{ type: "choice", choices }] } };
        console.log(JSON.stringify([write(schema), withStructgen(asked),
          withOpenai(asked, "", false), withCurl(asked, "", false), withStructgen(decisions)]));
    """
    typed = r'{"b":{"a\\":1},"10" : {"x":"\"7\":"},"2":"2","\uffff":"\uffff1","01":0,"1":["3"]}'
    wire, *codes, decisions = in_node(program, typed)
    assert json.dumps(json.loads(wire)) == json.dumps(json.loads(typed))  # the order counts here
    for code in codes:
        places = [code.index(f'"{name}": ') for name in ("b", "10", "2", "01", "1")]
        assert places == sorted(places), code
    assert '{"b": None, "2": None, "1": None}' in decisions


@needs_node
def test_code_is_what_was_typed_and_shows_each_character() -> None:
    program = """
        import { withStructgen } from "./calls.js";
        const made = JSON.parse(process.argv[1]).flatMap(text => [
          ["decisions", { input: text, questions: [] }], ["grammar", { grammar: text }],
          ["regex", { grammar: text }],
        ].map(([kind, body]) => withStructgen({ kind, body: {
          model: text, messages: [], grammar_type: "lark", ...body } })));
        console.log(JSON.stringify(made));
    """
    codes = in_node(program, json.dumps(TEXTS))
    assert len(codes) == 3 * len(TEXTS)
    for i, code in enumerate(codes):
        text = TEXTS[i // 3]
        said = {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
        assert {text, f"{text}\n"} & said, (text, code)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", code)


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
    assert reason.startswith("'blue' was not allowed: 'b', its byte 1, is invalid")
    assert reason.endswith("expected 'g' or 'r'.")
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


def test_a_drawing_is_xml_where_a_label_is_cut() -> None:
    label = "abcdefghijklmnop<>&"
    drawn = {"states": [{"accepting": True}], "is_whole": True}
    made = svg({**drawn, "edges": [{"from": 0, "to": 0, "label": label}]})
    assert label in "".join(ElementTree.fromstring(made).itertext())


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
        made.type("#key", KEY)
        made.press("Tab")
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
    assert ended(page) == "valid JSON"
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
        "grammar": "matches the grammar",
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
    page.js(
        "const list = document.querySelector('#schema-examples');"
        "list.value = 'A tree (recursive)'; list.dispatchEvent(new Event('change'))"
    )
    page.click("#run")  # a small model puts children in children until the tokens end
    assert re.fullmatch(r"valid JSON; shortened to fit max tokens: \$\S* and \d more", ended(page))
    assert page.js("return document.documentElement.scrollWidth") <= 360
    names = page.js(
        "return [...document.querySelectorAll('#value .key')]"
        ".map(one => one.getClientRects().length)"
    )
    assert len(names) > 5
    assert set(names) == {1}  # lines
    page.js(
        "const list = document.querySelector('#schema-examples');"
        "list.value = 'A person'; list.dispatchEvent(new Event('change'))"
    )
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
    for keyword, value in (("pattern", "(a"), ("type", "strin")):
        page.type("#schema", json.dumps({"properties": {"x": {keyword: value}}}))
        at = f"$.properties.x.{keyword}"
        page.wait(f"document.querySelector('#schema-note.bad')?.textContent.includes('{at}')")
        assert page.text("#schema-note").count(at) == 1
    page.click("#run")
    page.wait("!document.querySelector('#error').hidden")
    told = page.text("#error")
    assert told.count("response_format.json_schema.schema.properties.x") == 1
    page.type("#schema", "{")
    page.click("#run")
    page.wait("document.querySelector('#error').textContent.includes('not valid JSON')")


def test_no_answer_stands_beside_a_form_that_it_does_not_have(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=json_schema]').click()")
    page.type("#schema", '{"enum": ["red", "green"]}')
    page.click("#run")
    assert ended(page) == "valid JSON"
    assert page.text("#value")
    for wrong in ("{", '{"type": "strin"}'):
        page.type("#schema", '{"enum": ["red", "green"]}')
        page.click("#run")
        assert ended(page) == "valid JSON"
        page.type("#schema", wrong)
        page.wait("document.querySelector('#schema-note.bad') !== null")
        page.wait("document.querySelector('#value').textContent === ''")
        assert page.js("return document.querySelector('#tokens').children.length") == 0


def test_an_error_and_an_answer_go_out_of_date_with_the_form(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=json_schema]').click()")
    page.type("#schema", '{"enum": ["red", "green"]}')
    page.click("#run")
    assert ended(page) == "valid JSON"
    is_old = "return document.querySelector('#results').classList.contains('old')"
    assert not page.js(is_old)
    page.type("#schema", '{"enum": ["red", "blue"]}')
    assert page.js(is_old)
    page.type("#schema", '{"enum": ["red", "green"]}')
    assert not page.js(is_old)
    page.type("#schema", '{"pattern": "("}')
    page.click("#run")
    page.wait("!document.querySelector('#error').hidden")
    page.wait("document.querySelector('#schema-note').textContent.includes(' at $.pattern: ')")
    page.type("#schema", '{"enum": ["red"]}')
    assert page.js("return document.querySelector('#error').hidden")


def test_what_cannot_be_sent_is_said_in_the_forms_own_words(page: Browser) -> None:
    for kind, field, text, told in (
        ("json_schema", "schema", "null", "must be a JSON object"),
        ("json_schema", "schema", "[]", "must be a JSON object"),
        ("regex", "regex", "", "Type a regular expression."),
        ("choice", "choices", " ", "Type at least one choice."),
        ("grammar", "grammar", " ", "Type a grammar."),
    ):
        page.js("document.querySelector(`#types input[value=${arguments[0]}]`).click()", kind)
        was = page.js("return document.getElementById(arguments[0]).value", field)
        page.js(
            "const one = document.getElementById(arguments[0]); one.value = arguments[1];"
            "one.dispatchEvent(new Event('input', { bubbles: true }))",
            field,
            text,
        )
        page.click("#run")
        page.wait(f"document.querySelector('#error').textContent.includes({told!r})")
        page.wait(f"document.querySelector('#{field}-note').textContent.includes({told!r})")
        assert told in page.text("#code")
        page.js("document.getElementById(arguments[0]).value = arguments[1]", field, was)
    page.js("document.querySelector('#types input[value=decisions]').click()")
    page.js("document.querySelector('#code-kinds input[value=structgen]').click()")
    was = page.js("return document.querySelector('#questions').value")
    page.type("#questions", "[null]")
    assert page.text("#code") == "# The list of questions is incomplete."
    page.js("document.querySelector('#questions').value = arguments[0]", was)


def test_numbers_are_sent_as_they_are_typed(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=json_schema]').click()")
    page.type("#schema", '{"const": 12345678901234567891}')
    assert "12345678901234567891" in page.text("#code")
    page.click("#run")
    assert ended(page) == "valid JSON"
    assert "12345678901234567891" in page.text("#value")


def test_keys_start_and_stop_runs_and_the_focus_stays(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=regex]').click()")
    page.type("#regex", "[a-z]{4000}")  # runs for many seconds, if it is not stopped
    page.type("#max-tokens", "2000")
    page.js("document.querySelector('#run').focus()")
    page.press(" ")
    page.wait("!document.querySelector('#stop').disabled")
    assert page.js("return document.activeElement.id") == "run"
    page.js("document.querySelector('#stop').focus()")
    page.press(" ")
    page.wait("document.querySelector('#stop').disabled")
    assert page.js("return document.activeElement.id") == "run"
    # A field that is not shown, and a number that its arrows would not reach, stop nothing.
    page.type("#max-tokens", "9999")
    page.js("document.querySelector('#types input[value=decisions]').click()")
    page.click("#run")
    page.wait("document.querySelectorAll('#value .answer').length === 3")
    page.js("document.querySelector('#max-tokens').value = 120")


HOSTILE = """
    window.trueFetch ??= window.fetch;
    const said = arguments[0].map(piece => `data: ${piece}\n\n`).join("");
    window.fetch = async (path, options) => path === "/v1/chat/completions"
      ? new Response(said, { status: 200 }) : window.trueFetch(path, options);
"""


def piece(text: str, **more: Any) -> str:
    return json.dumps({"choices": [{"delta": {"content": text}, **more}]})


def test_answers_that_are_garbage_are_errors(page: Browser) -> None:
    page.js("document.querySelector('#types input[value=free]').click()")
    step = {"index": 0, "token_id": 1, "token": "x", "bytes": [120], "allowed": 2}
    try:
        for said, told in (
            (["<h1>Sign in</h1>"], "cannot read the server's answer"),
            (["null"], "cannot read the server's answer"),
            (["{}"], "cannot read the server's answer"),
            ([piece("x", trace=[None])], "cannot read the server's answer"),
            ([piece("x", trace=[step], finish_reason="stop"), "[DONE]"], "cannot read"),
            ([], "ended early"),
            ([piece("x")], "ended early"),
        ):
            page.js(HOSTILE, said)
            page.click("#run")
            page.wait(f"document.querySelector('#error').textContent.includes({told!r})")
            page.wait("document.querySelector('#stop').disabled")
            assert page.text("#value") == "", said
    finally:
        page.js("window.fetch = window.trueFetch")


def test_hostile_texts_are_shown_as_texts(page: Browser) -> None:
    nasty = "<img src=x onerror='document.title = 1'><script>1</script>\u202e\x07"
    top = [{"token": nasty, "token_id": 9, "logprob": -1, "is_allowed": False}]
    step = {"index": 0, "token_id": 1, "token": nasty, "bytes": list(nasty.encode()), "allowed": 2}
    step |= {"is_forced": False, "is_end": False, "logprob": -1, "removed": 0.5, "path": nasty}
    step |= {"own_top": top, "top": top}
    page.js("document.querySelector('#types input[value=json_schema]').click()")
    page.type("#schema", "{}")
    try:
        deep = "[" * 20_000
        for text in (json.dumps({nasty: nasty}, ensure_ascii=False), deep):
            page.js(HOSTILE, [piece(text, trace=[step], finish_reason=nasty), "[DONE]"])
            page.click("#run")
            assert ended(page) == nasty
            assert page.text("#value").count("[" if text is deep else "onerror") >= 2
            assert page.js("return document.querySelectorAll('#value *').length") < 500
    finally:
        page.js("window.fetch = window.trueFetch")
    assert page.text("#tokens").endswith("\\u202e\\u0007")
    assert page.js("return document.querySelectorAll('#results :is(img, script, a)').length") == 0
    assert page.js("return document.title") == "structgen playground"


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
    page.type("#key", f"wrong{KEY}")
    page.press("Tab")
    page.wait("document.querySelector('#key').getAttribute('aria-invalid') === 'true'")
    page.type("#key", "ключ")  # no header may have such letters
    page.press("Tab")
    page.wait("document.querySelector('#error').textContent.includes('ASCII')")
    page.js("document.querySelector('#key').value = ''")
    page.type("#key", KEY)
    page.press("Tab")
    page.wait("document.querySelector('#model').value === 'small'")
    assert page.js("return document.querySelector('#key').getAttribute('aria-invalid')") is None


def test_the_first_example_is_one_that_a_small_model_does_well(page: Browser) -> None:
    page.wait("document.querySelector('#schema-note').textContent.startsWith('Can be enforced')")
    page.click("#run")
    assert ended(page) == "valid JSON"
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
