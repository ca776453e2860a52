"""A language model that writes specs, played by a server of the test: every way of answering, and of failing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from jaxeval.align import PREDICATES
from jaxeval.io.errors import InputError
from jaxeval.io.spec import load_spec, spec_from_dict, task_names
from jaxeval.io.spec_write import spec_to_dict, write_spec
from jaxeval.segment.spec_from_model import EXAMPLE, ask_for_spec, prompt

KEY = "sk-very-secret-123"
BODIES = tuple(EXAMPLE["bodies"])
GOOD = json.dumps(EXAMPLE)

Reply = tuple[int, bytes]


def said(content: Any) -> Reply:
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


class Stub:
    """Answers requests with `replies`, one after the other (the last again and again), and keeps what it was sent."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.wait_s = 0.0
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stub.asked.append(json.loads(body))
                stub.headers.append(dict(self.headers))
                stub.paths.append(self.path)
                time.sleep(stub.wait_s)
                status, answer = stub.replies[min(len(stub.asked), len(stub.replies)) - 1]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{stub.endpoint}/elsewhere")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = Stub()
    yield made
    made.close()


def ask(stub: Stub, *replies: Reply, **given: Any) -> Any:
    stub.replies = list(replies)
    given = {"endpoint": stub.endpoint, "model": "m", "api_key": KEY} | given
    return ask_for_spec("Put the cap on the bottle.", BODIES, **given)


def test_a_good_answer_and_what_was_asked(stub: Stub) -> None:
    spec = ask(stub, said(GOOD), demonstrations_summary="they take 8 s")
    assert spec == spec_from_dict(EXAMPLE) and len(spec.sub_tasks) == 5
    sent = stub.asked[0]
    assert sent["model"] == "m" and [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert "cap on the bottle" in sent["messages"][1]["content"] and "8 s" in sent["messages"][1]["content"]
    assert stub.paths == ["/v1/chat/completions"] and stub.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(sent)


def test_the_prompt_holds_the_whole_vocabulary_and_the_example_is_no_known_task() -> None:
    assert all(f"- {kind}" in prompt() for kind in PREDICATES)
    assert EXAMPLE["name"] not in task_names()


@pytest.mark.parametrize(
    "content",
    [
        f"Here it is:\n```json\n{GOOD}\n```\nI hope this helps {{really}}.",
        f"<think>{{not it}} {{}}</think>{GOOD}",
        [{"type": "text", "text": GOOD[:200]}, {"type": "text", "text": GOOD[200:]}],
    ],
    ids=["fenced", "thought", "parts"],
)
def test_json_among_other_things(stub: Stub, content: Any) -> None:
    assert ask(stub, said(content)) == spec_from_dict(EXAMPLE)


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    data = json.loads(GOOD)
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (changed(lambda d: d["sub_tasks"][0]["until"][0].update(kind="touches")), "'touches'"),
        (changed(lambda d: d["bodies"].update(cork=d["bodies"]["cap"])), "cork"),
        (changed(lambda d: d["bodies"]["cap"].update(shape={"kind": "mesh", "file": "/etc/passwd"})), "'mesh'"),
        (changed(lambda d: d.update(sub_tasks=5)), "wrong type"),
        (changed(lambda d: d.pop("bodies")), "bodies"),
        ("I cannot do that.", "no JSON object"),
    ],
    ids=["kind", "body", "mesh", "type", "missing", "prose"],
)
def test_a_fault_goes_back_and_is_corrected(stub: Stub, answer: str, fault: str) -> None:
    assert ask(stub, said(answer), said(GOOD)) == spec_from_dict(EXAMPLE)
    assert len(stub.asked) == 2
    messages = stub.asked[1]["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == answer and fault in messages[3]["content"]


def test_never_valid_ends_after_the_attempts(stub: Stub) -> None:
    with pytest.raises(InputError, match=r"none of 2 answers.*no JSON object") as told:
        ask(stub, said("no"), attempts_n=2)
    assert len(stub.asked) == 2 and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((401, json.dumps({"error": {"message": f"Incorrect API key: {KEY}"}}).encode()), "HTTP 401.*OPENAI_API_KEY"),
        ((500, b"it\nbroke"), "HTTP 500.*it broke.*try again later"),
        ((404, b""), "HTTP 404"),
        ((302, b""), "HTTP 302"),
        ((200, b"<html>"), "not JSON"),
        ((200, b"\xff\xfe\x00"), "not JSON"),
        ((200, b'{"choices": []}'), "without choices"),
        ((200, b"[1]"), "without choices"),
        (said(None), "without text"),
    ],
)
def test_what_a_server_does_wrong_is_one_sentence_without_the_key(stub: Stub, reply: Reply, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        ask(stub, reply)
    assert KEY not in str(told.value) and "\n" not in str(told.value) and "expected" in str(told.value)
    assert len(stub.asked) == 1  # neither asked again nor sent elsewhere with the key


def test_late_and_not_there(stub: Stub) -> None:
    stub.wait_s = 0.5
    with pytest.raises(InputError, match=r"no answer within 0\.1 s"):
        ask(stub, said(GOOD), timeout_s=0.1)
    with pytest.raises(InputError, match="cannot be reached"):
        ask(stub, endpoint="http://127.0.0.1:9")  # the discard port: nothing listens


def test_keys_and_addresses_that_cannot_be(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="API key") as told:
        ask(stub, api_key="sk-a\nb")
    assert "sk-a" not in str(told.value)
    with pytest.raises(InputError, match="expected an address") as told:
        ask(stub, endpoint="ftp://me:pass@host/v1?token=t")
    assert "pass" not in str(told.value) and "token" not in str(told.value)
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    ask(stub, said(GOOD), api_key=None)
    assert stub.headers[-1]["Authorization"] == "Bearer from-the-environment"
    ask(stub, said(GOOD), api_key="")
    assert "Authorization" not in stub.headers[-1]


def test_written_specs_are_read_back_equal(tmp_path: Any) -> None:
    """Every known spec, and one with every part that they lack."""
    other = json.loads(GOOD)
    other["bodies"]["cap"]["symmetry"] = {"kind": "discrete", "fold": 3, "axis": [0, 1, 0]}
    other["bodies"]["wedge"] = {
        "shape": {"kind": "mesh", "vertices_m": [[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0]], "faces": [[0, 1, 2]]}
    }
    other |= {"ignored": ["wedge"], "gate": {"z_term": 2.5, "use_success_flag": False}}
    other["sub_tasks"][0]["until"] = [{"kind": "joint_past", "joint": "hinge", "fraction": 0.5, "range": [0.0, 1.5]}]
    for spec in [*map(load_spec, task_names()), spec_from_dict(other)]:
        path = write_spec(spec, tmp_path / f"{spec.name}.yaml", notes=("a note: with\ntwo lines",))
        assert load_spec(path) == spec == spec_from_dict(spec_to_dict(spec))
        assert path.read_text().startswith("# a note: with\n# two lines\nname:")
    with pytest.raises(InputError, match="cannot be written"):
        write_spec(load_spec("stack_cube"), path / "below_a_file.yaml")
