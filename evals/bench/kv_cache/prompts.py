"""A scripted call on the product's own prompt path, and the share of its history that each request keeps.

The path is that of a cascade: turns are committed with their perception, the gate's view of the session is
made from the store (``session_store.conversation``), the stage of the documents adds passages
(``processors.dialogue.passages``), and a model answers on a kept cache (``models.llm.kv``, tiny and random).
Each answer is committed as it was heard, and a summary is written when the session's own settings say so.

* **New** in a request: the person's words with their notes and passages, the remark at the end of an answer
  that was cut off, and a summary that no earlier request had.
* **History**: all other tokens. That is the prompt, the earlier turns, and the last answer as it was heard.
* **Kept**: tokens that the model did not read for this request, because they stand where it had read or
  written them before.
* **Before the words**: history, remark and summary. Their share is the stricter one.

Passages of an earlier question are in no later request, so they are no history. What stands after them is
read again and counts as lost. A summary replaces older turns, which are no history any more. The turns that
stay after it are, and are lost once.

For Claude the same requests are counted by the rules of its cache (``ClaudeCache``), in characters. There,
what is before the words ends with the last words that an earlier request held: a provider has no cache of an
answer before it was sent back.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path
from typing import Any, cast

from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage

from parley.configs.deployment import DEFAULT_PROMPT
from parley.core.passage_notes import is_passages
from parley.core.prompt_notes import parse_notes
from parley.evals.tiny_qwen3 import SPECIAL
from parley.language import find_language
from parley.models.llm import Message
from parley.models.llm.kv.causal import CausalLm, CausalSettings
from parley.models.llm.kv.dialogue import GenerationResult, Prefilled, Remembered
from parley.models.retrieval import Hit, Passage
from parley.processors.dialogue.engine_llm import messages_of
from parley.processors.dialogue.passages import QuestionPassages
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

# Documented lookback of Claude's cache: a breakpoint finds an entry that ends at most so many blocks earlier.
LOOKBACK_BLOCKS = 20
# In the template of the tiny model: the beginning of a message, and text that stands in none.
_BEGINS = "<|im_start|>"
_MARK = "\u241e"


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """Turn of the person, and what happens to its answer.

    Attributes:
        said: the words.
        rendered: the words with their tags; empty without any.
        heard: share of the answer that is heard.
        is_fact: true when the words state a fact.
    """

    said: str
    rendered: str = ""
    heard: float = 1.0
    is_fact: bool = False


def _tagged(said: str, tag: str) -> ScriptedTurn:
    return ScriptedTurn(said, rendered=f"{said} [{tag}]")


# Twenty turns: five facts, of which one corrects another, two interruptions, four turns with tags.
CALL = (
    ScriptedTurn("Hello, I would like to ask about the card that I use when I am abroad in the summer."),
    ScriptedTurn("My name is Ada. Which fees are there when I pay in another currency?", is_fact=True),
    ScriptedTurn("And when I take out cash at a machine that belongs to another bank?"),
    _tagged("That is more than I paid last year, and no letter said so.", "tense"),
    ScriptedTurn("My account number is 4172. Please look at the fee of last Monday.", is_fact=True),
    ScriptedTurn("No, it's 4173. And what was the exchange rate on that day?", is_fact=True),
    ScriptedTurn("Wait, I do not need the whole table of rates.", heard=0.6),
    ScriptedTurn("How long does it take until a payment shows up in the list?"),
    _tagged("What does this one here mean?", "pointing at the second line"),
    ScriptedTurn("I live in Berlin. Is there a branch near me that is open on Saturday?", is_fact=True),
    ScriptedTurn("Do I need to bring anything with me when I come to the branch?"),
    ScriptedTurn("How do I raise the limit of the card for two weeks in August?", heard=0.4),
    ScriptedTurn("No, I mean the limit per day and not the one per month."),
    _tagged("Fine, then do it that way.", "nodding"),
    ScriptedTurn("Remember that I drink tea. What happens when the card is lost abroad?", is_fact=True),
    ScriptedTurn("Who pays for the transfer of a new card to a hotel?"),
    _tagged("That sounds good to me, thank you.", "smiling"),
    ScriptedTurn("Can I see the same list of payments on the web page of the bank?"),
    ScriptedTurn("And for how many years do you keep those lists for me?"),
    ScriptedTurn("Please say once more which fee I pay for cash abroad."),
)


def script(turns: int) -> list[ScriptedTurn]:
    """Return the turns of a call; a longer one begins the script anew."""
    return [CALL[place % len(CALL)] for place in range(turns)]


DOCUMENT = Hit(
    Passage(
        "A payment in another currency costs 1.5 percent of the amount. Cash from a machine abroad costs 2 "
        "percent, at least four euros. The exchange rate is that of the day on which the payment is booked. "
        "The bank sends the new fees two months before they apply. " * 2,
        "Cards abroad",
        "the fee schedule",
    ),
    0.8,
)


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Counts of one request.

    Attributes:
        turn: number of the turn, from 1.
        causes: what happened since the request before that may move text.
        earlier_tokens: tokens before the words.
        history_tokens: those of the history.
        kept_tokens: see the module.
        sent_history_chars: characters before the words, for Claude.
        sent_kept_chars: those that its cache has.
    """

    turn: int
    causes: tuple[str, ...]
    earlier_tokens: int
    history_tokens: int
    kept_tokens: int
    sent_history_chars: int
    sent_kept_chars: int


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Counts of a call: of each request but the first, which has no history, and of the whole."""

    requests: tuple[RequestCount, ...]
    summaries: int

    @property
    def kept_share(self) -> float:
        """Kept tokens of all requests, as a share of the tokens of their histories."""
        return _share((each.kept_tokens, each.history_tokens) for each in self.requests)

    @property
    def strict_share(self) -> float:
        """Kept tokens of all requests, as a share of all tokens before the words."""
        return _share((each.kept_tokens, each.earlier_tokens) for each in self.requests)

    @property
    def claude_share(self) -> float:
        """The stricter share for Claude."""
        return _share((each.sent_kept_chars, each.sent_history_chars) for each in self.requests)


def _share(pairs: Iterable[tuple[int, int]]) -> float:
    kept, history = (sum(each) for each in zip(*pairs, strict=True))
    return kept / history


async def run_call(
    folder: Path,
    turns: Sequence[ScriptedTurn],
    *,
    has_documents: bool = False,
    answer_tokens: int = 440,
    budget_tokens: int = 4_500,
) -> CallCounts:
    """Hold the call and return its counts.

    Args:
        folder: of a model whose tokens are single characters, and for the session.
        turns: of the person.
        has_documents: true when each question comes with passages.
        answer_tokens: length of each answer; 440 letters are about 100 tokens of a large model.
        budget_tokens: of the conversation's settings.
    """
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    conversation = ConversationTuning(budget_tokens=budget_tokens)
    language = find_language()
    compactor = Compactor(
        conversation.compaction, budget_tokens=budget_tokens, facts=language.facts, language=language
    )
    conversations = Conversations(store, conversation, compactor=compactor)
    try:
        async with conversations.open() as held:
            call = _Call(folder, held, has_documents=has_documents, answer_tokens=answer_tokens)
            counts = [await call.turn(number, each) for number, each in enumerate(turns, start=1)]
            return CallCounts(tuple(counts[1:]), call.summaries)
    finally:
        await conversations.close()
        await store.close()


class _Call:
    """State of one call: its session, its model with a kept cache, and the requests so far."""

    def __init__(
        self, folder: Path, conversation: Conversation, *, has_documents: bool, answer_tokens: int
    ) -> None:
        self._conversation = conversation
        self._passages = QuestionPassages(lambda _question, _before: (DOCUMENT,)) if has_documents else None
        self._model = CausalLm(
            CausalSettings(
                model=folder, device="cpu", threads=1, answer_tokens=answer_tokens, context_tokens=65_536
            )
        )
        self._scope = self._model.scope("call")
        self._remembered = Remembered()
        self._claude = ClaudeCache()
        self._summaries: set[str] = set()
        self._last: ScriptedTurn | None = None
        self._answered = ""
        self._front = ""

    @property
    def summaries(self) -> int:
        """Number of summaries that a request had."""
        return len(self._summaries)

    async def turn(self, number: int, turn: ScriptedTurn) -> RequestCount:
        """Ask one turn, commit its answer as it is heard, and return the counts of the request."""
        held = self._conversation
        causes = self._causes(turn)
        await held.user_turn(turn.said, transport="webrtc", rendered=turn.rendered)
        context = LLMContext(messages=cast(list[LLMContextMessage], list(held.view().messages)))
        if self._passages is not None:
            frame = LLMContextFrame(context)
            await self._passages.on_frame(None, frame)
            context = frame.context
        asked = messages_of(context, DEFAULT_PROMPT)
        read, answer = self._answer(asked)
        earlier = read.cached_tokens + read.input_tokens - self._new_tokens(asked)
        history = earlier - self._new_before_words(asked)
        sent_history, sent_kept = self._claude.ask(await claude_request(context))
        await self._commit(number, answer, turn.heard)
        self._last, self._answered, self._front = turn, answer, _front(asked)
        return RequestCount(
            number, causes, earlier, history, min(read.cached_tokens, history), sent_history, sent_kept
        )

    def _causes(self, turn: ScriptedTurn) -> tuple[str, ...]:
        found = []
        # The conversation keeps the newest summary only.
        newest = {event.key for event in self._conversation.events if event.kind is Kind.SUMMARY}
        if newest - self._summaries:
            found.append("summary")
        self._summaries |= newest
        if self._last is not None and self._last.heard < 1:
            found.append("interruption")
        if turn.is_fact:
            found.append("fact")
        if turn.rendered:
            found.append("tag")
        return tuple(found)

    def _answer(self, dialogue: Sequence[Message]) -> tuple[Prefilled, str]:
        asked = self._remembered.ask(dialogue)
        read, *_, answered = self._model.answer(self._scope, asked)
        assert isinstance(read, Prefilled) and isinstance(answered, GenerationResult)
        self._remembered.answered(asked, answered)
        return read, answered.text

    def _new_tokens(self, dialogue: Sequence[Message]) -> int:
        """Return the tokens from the new words on, with their notes and passages."""
        is_found = len(dialogue) > 1 and is_passages(dialogue[-2].text)
        first = len(dialogue) - (2 if is_found else 1)
        before = self._model.rendered((*dialogue[:first], Message("user", _MARK))).partition(_MARK)[0]
        new = self._model.rendered(dialogue)[before.rindex(_BEGINS) :]
        # A character is a token, and each special token is one.
        for special in SPECIAL:
            new = new.replace(special, "S")
        return len(new)

    def _new_before_words(self, dialogue: Sequence[Message]) -> int:
        """Return the characters of a remark and of a summary that no earlier request had."""
        new = 0
        answers = [message.text for message in dialogue if message.role == "assistant"]
        if answers and self._last is not None and self._last.heard < 1:
            new += len(answers[-1]) - len(commonprefix([answers[-1], self._answered]))
        front = _front(dialogue)
        return new + (len(front) if front != self._front and parse_notes(front)[0].summary else 0)

    async def _commit(self, number: int, answer: str, share: float) -> None:
        end = round(len(answer) * share)
        payload = {
            "reply_id": f"reply.{number}",
            "text": answer[:end],
            "truncated": share < 1,
            "unheard": answer[end:],
            "transport": "webrtc",
        }
        held = self._conversation
        await held.append(held.draft(Kind.BOT_TURN, "bot", payload, key=f"reply.{number}"))
        await held.kept_short()


def _front(dialogue: Sequence[Message]) -> str:
    """Return the notes before the first words of the person."""
    text = next((message.text for message in dialogue if message.role == "user"), "")
    return text.removesuffix(parse_notes(text)[1])


async def claude_request(context: LLMContext) -> dict[str, Any]:
    """Return system and messages of a request to Claude as the product's service sends them."""
    from parley.processors.dialogue.anthropic_service import ClaudeService

    adapter = ClaudeService.adapter_class()
    sent = await adapter.get_llm_invocation_params(
        context, enable_prompt_caching=True, system_instruction=DEFAULT_PROMPT
    )
    return {"system": sent["system"], "messages": sent["messages"]}


@dataclass(frozen=True, slots=True)
class _Block:
    """Content block of a request.

    Attributes:
        digest: of everything up to its end.
        chars: length of its text.
        is_marked: true when it is a breakpoint.
        is_words: true for words of the person.
    """

    digest: str
    chars: int
    is_marked: bool
    is_words: bool


class ClaudeCache:
    """Claude's prompt cache by its documented rules, for the requests of one conversation.

    An entry is written at each breakpoint. A request reads the longest entry that ends at one of its
    breakpoints or at most ``LOOKBACK_BLOCKS`` blocks before it.
    """

    def __init__(self) -> None:
        self._entries: set[str] = set()

    def ask(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """Take a request; return the characters of its history, and those of them that the cache has."""
        blocks = _blocks(request)
        marked = [place for place, block in enumerate(blocks) if block.is_marked]
        looked_at = {at for place in marked for at in range(max(0, place - LOOKBACK_BLOCKS), place + 1)}
        read = max((at + 1 for at in looked_at if blocks[at].digest in self._entries), default=0)
        # Words that an earlier request held.
        sent = max((at + 1 for at, block in enumerate(blocks[:-1]) if block.is_words), default=0)
        self._entries.update(blocks[place].digest for place in marked)
        return _chars(blocks[:sent]), _chars(blocks[: min(read, sent)])


def _chars(blocks: Sequence[_Block]) -> int:
    return sum(block.chars for block in blocks)


def _blocks(request: Mapping[str, Any]) -> list[_Block]:
    found: list[_Block] = []
    digest = hashlib.sha256()
    for role, block in _content(request):
        bare = {name: value for name, value in block.items() if name != "cache_control"}
        digest.update(json.dumps([role, bare], sort_keys=True).encode())
        text = str(block.get("text", ""))
        is_words = role == "user" and block.get("type") == "text" and not is_passages(text)
        found.append(_Block(digest.hexdigest(), len(json.dumps(bare)), "cache_control" in block, is_words))
    return found


def _content(request: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Return role and content of each block, in the order in which Claude caches them."""
    for tool in request.get("tools", ()):
        yield "tools", tool
    system = request.get("system") or ()
    yield from (
        ("system", block)
        for block in ([{"type": "text", "text": system}] if isinstance(system, str) else system)
    )
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield from ((message["role"], block) for block in blocks)
