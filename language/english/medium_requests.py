"""Recognise turns that ask for another medium: to write, to talk, to show something. Pure.

As with a request for a person, a turn that contains anything else is a question like any other: "can I show
you something" is a request, "can I show you something that I bought last week" is not. What a deployment
leaves to another medium, whatever the words around it, is a rule of the deployment (``tiers.offers``).
"""

import re

from parley.core.tiers import Medium
from parley.language.english.courtesies import bare_request

_WE = (
    r"(?:(?:can|could|may|shall|should) (?:i|we) (?:please )?|"
    r"(?:i|we)(?:'d|'ll| would| will)? (?:want(?:ed)?|like|need|wish|prefer|rather|love)(?: to)? |"
    r"let me |let us |let's |is it possible to )?"
)
# "I'll write" promises more than it asks for.
_WILL = rf"(?:(?:i|we)(?:'ll| will) )?{_WE}"
_YOU = r"(?:can|could|will|would) you (?:please )?"
_SWITCH = r"(?:switch|change|go|move) (?:over )?to "
_DO = r"(?:do|discuss|finish) (?:this|that|it)"
_TALK = re.compile(
    rf"{_WE}(?:(?:talk|speak)(?: (?:to|with) you)?(?: about (?:it|this|that))?(?: (?:instead|directly))?|"
    rf"(?:call|phone|ring) you(?: up)?(?: instead)?|(?:have |make |start )?a (?:voice )?call|"
    rf"{_SWITCH}(?:voice|a call|speech))"
)
_WRITE = re.compile(
    rf"{_WE}(?:(?:write|type|chat|text)(?: (?:to|with) you)?(?: instead)?|"
    rf"(?:go on|continue|{_DO}) (?:in writing|by text|in the chat)|"
    rf"{_SWITCH}(?:text|writing|chat|typing|the chat))"
)
_THIS = r"(?:something|this|it|that|what i mean|what i have(?: here)?|how it looks|what it looks like)"
_CAMERA = r"(?:(?:my|the) )(?:camera|video|webcam)"
_SHOW = re.compile(
    rf"{_WILL}(?:show (?:you(?: {_THIS})?|{_THIS} to you)(?: here)?(?: (?:on|with|through|over) {_CAMERA})?|"
    rf"(?:turn|switch) on {_CAMERA}|(?:turn|switch) {_CAMERA} on|(?:use|open|start) {_CAMERA}|"
    rf"(?:have |make |start )?a video call|{_SWITCH}(?:video|a video call))|"
    rf"{_YOU}(?:see|look at|have a look at) (?:me|this|it|that)"
)
_SCREEN = r"(?:(?:my|the) )screen"
_SHARE = re.compile(
    rf"{_WILL}(?:share {_SCREEN}(?: with you)?|show you {_SCREEN}|show {_SCREEN} to you)|"
    rf"{_YOU}(?:see|look at|have a look at) {_SCREEN}"
)
_HIDE = re.compile(
    rf"(?:{_WILL}|(?:{_YOU})?)(?:(?:turn|switch) off {_CAMERA}|(?:turn|switch) {_CAMERA} off|"
    rf"(?:close|stop|hide) (?:{_CAMERA}|{_SCREEN})|"
    rf"stop (?:sharing|showing)(?: you)?(?: {_SCREEN}| {_CAMERA})?|{_SWITCH}voice(?: only)?|"
    rf"stop looking|look away)"
)
_REQUESTS = (
    (Medium.SCREEN, _SHARE),
    (Medium.VIDEO, _SHOW),
    (Medium.TEXT, _WRITE),
    (Medium.VOICE, _TALK),
)


def requested_medium(text: str, *, is_shown: bool) -> Medium | None:
    """Return the medium that a turn asks for and says nothing else; see ``IntentRules``."""
    before, rest = bare_request(text)
    if before == "no":
        # "No, I want to talk" is a request as well; "no camera" is none.
        rest = rest.removeprefix("no ")
    if is_shown and _HIDE.fullmatch(rest):
        return Medium.VOICE
    return next((medium for medium, pattern in _REQUESTS if pattern.fullmatch(rest)), None)
