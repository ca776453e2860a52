"""A task spec written by a language model, through any OpenAI-compatible ``/chat/completions`` endpoint.

Off unless called. The model is told the schema, the closed vocabulary and one made-up example, and answers in JSON.
What it answers is checked as any task spec is; a fault goes back to it as one sentence. Nothing it writes is executed,
and no file that it names is opened. Source: SPECTRA III-A1 has sub-tasks from a language model; the prompt is ours.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

from jaxeval.align import PREDICATES
from jaxeval.io.errors import InputError
from jaxeval.io.spec import spec_from_dict
from jaxeval.types import TaskSpec

KEY_VARIABLE = "OPENAI_API_KEY"
ANSWER_BYTES = 4_000_000
_SHAPES = ("box", "cylinder", "sphere")

EXAMPLE: dict[str, Any] = {
    "name": "cap_bottle",
    "instruction": "Put the cap on the bottle.",
    "bodies": {
        "cap": {"shape": {"kind": "cylinder", "radius_m": 0.015, "half_length_m": 0.01}, "symmetry": "spin"},
        "bottle": {"shape": {"kind": "cylinder", "radius_m": 0.03, "half_length_m": 0.09}, "symmetry": "spin"},
        "bench": {"shape": {"kind": "box", "half_size_m": [0.6, 0.4, 0.02]}},
        "hand": {"shape": {"kind": "box", "half_size_m": [0.02, 0.1, 0.03]}},
    },
    "support": "bench",
    "gripper": "hand",
    "manipulated": ["cap"],
    "reference": "bottle",
    "sub_tasks": [
        {
            "name": "reach",
            "means": "the open gripper comes to the cap",
            "until": [{"kind": "near", "body": "hand", "other": "cap", "value_m": 0.05}],
        },
        {
            "name": "grasp",
            "means": "the gripper closes on the cap and it leaves the bench",
            "until": [{"kind": "lifted", "body": "cap", "value_m": 0.002}],
        },
        {
            "name": "carry",
            "means": "the cap is brought above the mouth of the bottle",
            "until": [{"kind": "near", "body": "cap", "other": "bottle", "axes": "xy", "value_m": 0.01}],
        },
        {
            "name": "place",
            "means": "the cap is put down, 0.1 m above the bottle's middle, and let go of",
            "until": [
                {"kind": "near", "body": "cap", "other": "bottle", "offset_m": [0, 0, 0.1], "value_m": 0.01},
                {"kind": "gripper_opening", "value_m": 0.003},
            ],
        },
        {
            "name": "retreat",
            "means": "the gripper leaves and comes to rest",
            "until": [
                {"kind": "away", "body": "hand", "other": "cap", "value_m": 0.06},
                {"kind": "at_rest", "body": "hand", "value_m": 0.002, "window_s": 0.1},
            ],
        },
    ],
}
"""A task that no simulator has, as it is shown to the model."""

_RULES = """\
You divide a robot manipulation task into ordered sub-tasks, as one JSON object. Answer with that object alone: no
prose, no comments.

Keys of the object:
- name: short, lower case with underscores; instruction: one sentence.
- bodies: a table, name -> {shape, symmetry}. Use exactly the names given below, each once, and no others. shape is
  {"kind": "box", "half_size_m": [x, y, z]}, {"kind": "cylinder", "radius_m": r, "half_length_m": h} (axis z) or
  {"kind": "sphere", "radius_m": r}. symmetry is left out, or "spin" (any turn about z), or "all" (a plain ball). A
  point marked on another body is {"frame_of": "that body"} instead of a shape, listed after it.
- support: the body that things rest on; gripper: the body that is the robot's hand.
- manipulated: a list of the bodies that the robot moves; reference: the one body that they are placed against, or "".
- sub_tasks: a list, in the order in which they happen, of {"name", "means", "until"}. A sub-task ends at the first
  frame, after the end of the one before, at which all predicates in its "until" hold at once. Use four to eight, each
  with a name of its own, ending where the relation between bodies changes: the gripper has come to an object, it begins
  to close, the object has left its place, it has come to its goal, the gripper begins to open, it has left.

Numbers are metres and seconds. A body's frame turns with it; z of the support points up. A predicate has "kind" and
only these keys: body, other, value_m (above 0), window_s (above 0), axes (some of "xyz", all if left out), offset_m
([x, y, z], zero if left out), and for joint_past: joint, fraction, range ([low, high]). Choose thresholds that a good
execution passes with a margin: near targets 0.01 to 0.05, motion 0.001 to 0.005, windows 0.1 to 0.4.

Kinds, the keys each needs beside its value, and what each means ("value" is value_m, or fraction):
"""

_NEEDS = {
    "gripper_closed": "window_s",
    "lifted": "body",
    "near": "body, other",
    "away": "body, other",
    "held": "body, window_s",
    "released": "body, window_s",
    "moving": "body",
    "at_rest": "body, window_s",
    "joint_past": "joint, fraction, range",
}


def prompt() -> str:
    """Instructions to the language model, the same for every task: form of the answer, vocabulary, an example."""
    kinds = []
    for kind, function in PREDICATES.items():
        meaning = (function.__doc__ or "").strip().splitlines()[0].replace("``", "")
        kinds.append(f"- {kind}{f' ({_NEEDS[kind]})' if kind in _NEEDS else ''}: {meaning}")
    example = json.dumps(EXAMPLE)
    return f"{_RULES}{chr(10).join(kinds)}\n\nExample, of another task:\n{example}\n"


def ask_for_spec(
    instruction: str,
    bodies: Mapping[str, str] | Sequence[str],
    *,
    endpoint: str,
    model: str,
    api_key: str | None = None,
    demonstrations_summary: str = "",
    timeout_s: float = 60.0,
    attempts_n: int = 3,
) -> TaskSpec:
    """Task spec that a language model writes for an instruction and named bodies.

    ``bodies``: names, or a table of names and what to say of each (its size, what it is). ``endpoint``: the address
    that ``/chat/completions`` is appended to, such as ``http://localhost:8000/v1``. ``api_key``: sent as a bearer
    token; None for the variable OPENAI_API_KEY, and none is sent where that is not set. ``timeout_s`` is for each
    answer. An answer that is no valid spec goes back with the fault, ``attempts_n`` answers in all.

    Raises:
        InputError: in one sentence: the endpoint cannot be used or reached, refuses, is late, answers in another form,
            or the model's last answer is not a valid spec. No message holds the key.
    """
    if attempts_n < 1 or not timeout_s > 0:
        raise InputError(
            f"attempts_n is {attempts_n} and timeout_s {timeout_s}; expected 1 or more and over 0; correct them"
        )
    if not instruction.strip() or not bodies:
        raise InputError(
            "no instruction or no bodies; expected a sentence and at least one body for the language model; give both"
        )
    service = _Service(endpoint, model, api_key if api_key is not None else os.environ.get(KEY_VARIABLE, ""), timeout_s)
    described = bodies.items() if isinstance(bodies, Mapping) else [(name, "") for name in bodies]
    lines = [f"Instruction: {instruction.strip()}", "Bodies:"]
    lines += [f"- {name}{f': {what}' if what else ''}" for name, what in described]
    if demonstrations_summary:
        lines += ["What demonstrations of the task show:", demonstrations_summary.strip()]
    messages = [{"role": "system", "content": prompt()}, {"role": "user", "content": "\n".join(lines)}]
    fault = ""
    for _ in range(attempts_n):
        answer = service.answer(messages)
        try:
            return _checked(answer, set(bodies))
        except InputError as error:
            fault = str(error)
        again = f"That cannot be used: {fault}. Answer with the whole corrected JSON object alone."
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": again}]
    raise InputError(
        service.without_key(
            f"{service.name}: none of {attempts_n} answers of model '{model}' is a valid task spec (the last: {fault});"
            " expected JSON in the form of the task specs; say the instruction more plainly, try another model, or "
            "write the spec by hand"
        )
    )


def _checked(answer: str, bodies: set[str]) -> TaskSpec:
    """The spec in an answer. InputError says what is wrong with it."""
    data = _json_object(answer)
    declared = data.get("bodies")
    if isinstance(declared, Mapping):
        if extra := sorted(set(map(str, declared)) - bodies):
            raise InputError(
                f"task spec: bodies holds {', '.join(extra)}; expected only {', '.join(sorted(bodies))}; "
                "use those names"
            )
        for name, body in declared.items():
            shape = body.get("shape") if isinstance(body, Mapping) else None
            kind = shape.get("kind") if isinstance(shape, Mapping) else shape
            if isinstance(body, Mapping) and "frame_of" in body and shape is None:
                continue
            if kind not in _SHAPES:  # a mesh names a file, and no file is opened on a model's word
                raise InputError(
                    f"task spec: bodies.{name}.shape.kind is {kind!r}; expected one of {', '.join(_SHAPES)}; correct it"
                )
    try:
        return spec_from_dict(data)
    except InputError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(
            f"task spec: a value is of the wrong type ({error}); expected tables, lists, numbers and names as in the "
            "example; correct it"
        ) from error


def _json_object(answer: str) -> dict[str, Any]:
    """The first JSON object in a text that has sub_tasks, whatever stands around it (fences, prose)."""
    decoder, at, some = json.JSONDecoder(), answer.find("{"), False
    while at >= 0:
        try:
            data, end = decoder.raw_decode(answer, at)
        except (json.JSONDecodeError, RecursionError):
            end = at + 1
        else:
            some = True
            if "sub_tasks" in data:
                return data
        at = answer.find("{", end)
    found = "JSON without sub_tasks" if some else "no JSON object"
    raise InputError(f"the answer holds {found}; expected one object with name, bodies and sub_tasks; write it whole")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key goes to the address that was given, and to no other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Service:
    """One endpoint and model; turns every way of failing into one sentence without the key."""

    def __init__(self, endpoint: str, model: str, key: str, timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(endpoint)
        # user name, password and query may be secrets: they are not repeated in messages
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"endpoint is '{self.name}'; expected an address such as http://localhost:8000/v1; correct it"
            )
        self.key = key.strip()
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise InputError(
                "the API key holds spaces or characters that no key has; expected one word; correct it or "
                f"{KEY_VARIABLE}"
            )
        path = parts.path.rstrip("/")
        path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
        self.url = urllib.parse.urlunsplit(parts._replace(path=path))
        self.model, self.timeout_s = model, timeout_s

    def without_key(self, text: str) -> str:
        """The text with the key blotted out, should a server have repeated it."""
        return text.replace(self.key, "***") if self.key else text

    def fail(self, found: str, expected: str, action: str) -> InputError:
        return InputError(self.without_key(f"{self.name}: {' '.join(found.split())}; expected {expected}; {action}"))

    def answer(self, messages: list[dict[str, str]]) -> str:
        """Content of the first choice."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        body = json.dumps({"model": self.model, "messages": messages}).encode()
        late = self.fail(
            f"no answer within {self.timeout_s:g} s", "one in time", "raise timeout_s or try a faster model"
        )
        try:
            request = urllib.request.Request(self.url, body, headers, method="POST")
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout_s) as response:
                raw = response.read(ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except TimeoutError:
            raise late from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise late from None
            raise self.fail(
                f"cannot be reached ({error.reason})", "a server that answers", "check the address, or start it"
            ) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self.fail(
                f"the connection broke off ({type(error).__name__})", "a whole answer", "try again, or check the server"
            ) from None
        if len(raw) > ANSWER_BYTES:
            raise self.fail(f"over {ANSWER_BYTES} bytes", "an answer of a few thousand", "check the address")
        try:
            data = json.loads(raw)
        except (ValueError, RecursionError):
            raise self.fail("an answer that is not JSON", "a chat completion", "check the address") from None
        choices = data.get("choices") if isinstance(data, dict) else None
        if not isinstance(choices, list) or not choices:
            raise self.fail(
                "an answer without choices", "a chat completion with one", "check the model and the address"
            )
        message = choices[0].get("message") if isinstance(choices[0], dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):  # content in parts
            content = "".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
        if not isinstance(content, str) or not content.strip():
            raise self.fail("a first choice without text", "the task spec as text", "try another model")
        return content

    def _refused(self, error: urllib.error.HTTPError) -> InputError:
        try:
            said = error.read(2000).decode("utf-8", "replace")
        except (OSError, HTTPException):
            said = ""
        try:
            body = json.loads(said)["error"]
            said = body["message"] if isinstance(body, dict) else str(body)
        except (ValueError, KeyError, TypeError):
            pass
        said = " ".join(self.without_key(str(said)).split())[:200]
        found = f"HTTP {error.code} {error.reason}{f' ({said})' if said else ''}"
        if error.code in (401, 403):
            return self.fail(found, "a key that this server takes", f"give api_key or set {KEY_VARIABLE}")
        if error.code == 404:
            return self.fail(
                found, f"a server that has /chat/completions and '{self.model}'", "check address and model"
            )
        if error.code == 429:
            return self.fail(found, "a request within its limits", "wait and try again")
        if error.code < 400:
            return self.fail(found, "an answer from this very address", "give the address that it points to")
        return self.fail(
            found, "an answer", "try again later" if error.code >= 500 else "check the model and the address"
        )
