"""Patterns by which ``facts`` recognises statements, questions and requests. Tables only."""

import re

from parley.language.facts import BORN, HOME, ORIGIN, WORK

# "Mr. Smith" does not end a sentence.
SENTENCE = re.compile(r"(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)(?<=[.!?;])\s+|\n+")
OPENING = re.compile(
    r"(?:(?:hello|hi|hey|good (?:morning|afternoon|evening|day)|there|okay|ok|um|uh|uhm|er|erm|well|"
    r"so|oh|and|"
    r"but|also|yes|yeah|sure|please|alright|all right|thanks|thank you|by the way)[\s,.!:-]+)+",
    re.I,
)
QUESTION_START = re.compile(
    r"(?:what|who|whose|whom|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|may|might|"
    r"should|would|will|shall|has|have|what's|who's|where's|when's|how's|isn't|aren't|don't|doesn't|"
    r"didn't|"
    r"can't|couldn't|won't|tell me|remind me|say my)\b",
    re.I,
)
QUESTION_INSIDE = re.compile(
    r"\b(?:what|how|where|when|why|who|which) "
    r"(?:is|are|was|were|do|does|did|can|could|should|would|will|much|many|long|about|time|to)\b"
    r"|\b(?:can|could|may|should|do|does|would|will|shall|must) (?:i|you|we|it|they)\b"
    r"|\b(?:is|are) (?:it|there|you|that|this)\b|\btell me\b|\bwhat's\b",
    re.I,
)
# A statement that follows one of these is not asserted.
CONDITION = re.compile(
    r"\b(?:when|what|where|why|how|who|which|(?:he|she|it|they|who|somebody|someone) (?:says?|said|"
    r"thinks?))\s*$"
    r"|\b(?:if|whether|unless|suppose|imagine|pretend)\b",
    re.I,
)
REQUEST = re.compile(
    r"(?:(?:can|could|would|will) you (?:please |also )?|you (?:should|must|can) |"
    r"i(?: want| need|'d like| would like) you to |please |now )*"
    r"(?:remember|don't forget|do not forget|note|keep in mind|make a note|take a note|write down|"
    r"note down|"
    r"save|store)(?P<that> that| this| down that)?[:,]? (?P<rest>.+)",
    re.I,
)
CALL_REQUEST = re.compile(
    r"(?:can|could|would|will) you (?:please )?(?:call|phone|ring) me (?:back|at|on|tomorrow)\b", re.I
)

# Attributes of a person or of their dealings: "my ... is" states a fact whatever follows.
OWN = frozenset(
    "name surname nickname username login age birthday birthdate birth address street city town country "
    "email mail e-mail phone mobile cell telephone number code pin id iban postcode zip colour "
    "color food "
    "drink language job occupation profession company employer hobby hobbies title flight seat room "
    "reference password passport licence license plate appointment reservation booking nationality team "
    "height weight size book movie film song band pet instrument sport extension deadline budget".split()
)
NUMBERED = frozenset(
    "number pin code id iban postcode zip reference phone mobile cell telephone extension".split()
)
NAMED = frozenset("name surname nickname".split())
ADDRESSED = frozenset("address street".split())
MAILED = frozenset("email mail e-mail".split())
FAVOURITE = frozenset(("favorite", "favourite"))
FAMILY = frozenset(
    "wife husband partner son daughter mother father mom mum dad brother sister dog cat horse "
    "friend boss "
    "girlfriend boyfriend doctor neighbour neighbor".split()
)
# Subjects that state nothing about the person: "my question is whether", "my guess is".
NO_FACT = frozenset(
    "question questions problem problems issue issues point guess idea opinion concern concerns "
    "understanding "
    "feeling fault turn pleasure request complaint call reason card account money hope plan wish".split()
)
NO_NAME = frozenset(
    "not on in at the a an my your his her their our spelled spelt misspelled wrong right correct "
    "incorrect "
    "important private secret irrelevant none unknown written missing there here nothing what also "
    "already "
    "still changed long short common unusual difficult hard easy with by under of and or but is it "
    "that this "
    "being going very really so too no yes different mine same needed required good fine okay ok "
    "ready sorry "
    "lost stuck back calling speaking trying looking if to for from about sure i you he she we they "
    "me".split()
)
NO_VALUE = frozenset(
    "not no still being going about that what how why where when if because gone lost stolen "
    "missing broken "
    "blocked locked closed frozen late wrong very so too really always never nearly almost in at on "
    "with from "
    "to of out off up down over under away empty full slow bad good fine okay ok right correct "
    "incorrect due "
    "there here it this your you i important secret unknown hacked".split()
)
NATIONS = frozenset(
    "american british english french german dutch greek swiss spanish italian canadian australian "
    "russian "
    "indian chinese japanese polish turkish irish scottish welsh swedish danish finnish norwegian "
    "mexican "
    "brazilian austrian belgian portuguese korean ukrainian african european asian christian jewish "
    "muslim "
    "catholic".split()
)
FILLER = re.compile(
    r"^(?:(?:um|uh|uhm|er|erm|just|actually|simply|now|like|called|named|it's|it is)[\s,]+)+", re.I
)
BEHIND = re.compile(
    r"[\s,]+(?:and|but|so|or)[\s,]+(?=(?:my|i|i'm|i'd|i've|i'll|the|you|we|can|could|please|what|how|"
    r"where|call|remember|that|it|it's|would|do|is|then|a|an|don't)\b).*"
    r"|[\s,]+(?:but|because|although|though|since|please|thanks|thank you|what|how|why|can you|could you|"
    r"can i|could i|would you|will you|do you|did you|should i|may i|is that|what's|i'm|i am|i'd|"
    r"i want|i need|i have|i lost|i live|"
    r"my(?= \w+(?: \w+){0,3} (?:is|are)\b)|right|okay|ok|by the way|speaking|and so on)\b.*",
    re.I | re.S,
)

MY = re.compile(
    r"\b(?:my|our) (?P<name>[a-z][a-z'-]*(?: [a-z][a-z'-]*){0,4}?)(?:'s| is| was| are| were|:|"
    r" =),? (?P<rest>.+)",
    re.I,
)
IS_MY = re.compile(
    r"^(?P<value>\S+(?: \S+){0,7}?),? (?:is|are|was) my (?P<name>[a-z][a-z'-]*(?: [a-z'-]+){0,2})$", re.I
)
THE_NUMBER = re.compile(
    r"^(?:it is |it's |that is |that's |the |for |on )*(?P<name>(?:account|order|reference|customer|"
    r"policy|phone|"
    r"telephone|mobile|card|invoice|booking|confirmation|member|membership|contract|ticket|case) number)"
    r"(?: is| was|:)? (?P<rest>.+)",
    re.I,
)
THE_NAME = re.compile(r"^the name(?:'s| is) (?P<rest>.+)", re.I)
CALL_ME = re.compile(
    r"\b(?:you can|you may|please|just|everybody|everyone|people|friends|they|"
    r"my friends) (?:all )?call(?:s)? me "
    r"(?P<rest>.+)",
    re.I,
)
SPEAKING = re.compile(
    r"^(?:this is|it's|it is|i'm|i am) (?P<rest>\S+(?: \S+){0,2}) (?:speaking|calling|here)\b", re.I
)
I_AM = re.compile(
    r"^(?:I'm|I am|This is) (?P<rest>[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,3})(?P<end>[,.!]?$|"
    r"[,.!]? (?:and|from|calling|here|speaking)\b)"
)
CALL_ME_BACK = re.compile(
    r"\b(?:call|phone|ring|reach) me(?P<back> back)?(?P<rest> (?:at|on|in|after|before|around|"
    r"between|by|next|this|"
    r"tomorrow|tonight|later|today|any ?time|every|from|until|as soon)\b.*)",
    re.I,
)
ABOUT_ME = (
    (
        HOME,
        re.compile(
            r"\bi(?:'m| am)? (?:currently |now )?(?:live|living|reside) (?:in|at|on|near) (?P<rest>.+)",
            re.I,
        ),
    ),
    (ORIGIN, re.compile(r"\bi(?:'m| am| come)(?: originally)? from (?P<rest>.+)", re.I)),
    (
        WORK,
        re.compile(
            r"\bi(?:'m| am)? (?:currently |now )?work(?:ing)? (?P<rest>(?:for|at|in|as) .+)",
            re.I,
        ),
    ),
    (BORN, re.compile(r"\bi was born (?P<rest>(?:in|on|at) .+)", re.I)),
)
YEARS_OLD = re.compile(r"\bi(?:'m| am) (?P<rest>\S+(?: \S+)?) years? old\b", re.I)

INTENTS = (
    re.compile(
        r"\b(?:i am|i'm|i was|i called|i call|we are|we're|i'm just) ?(?:calling|phoning|ringing|"
        r"writing|here|"
        r"contacting you|getting in touch)?(?: you)?(?: today| back| again)? "
        r"(?P<lead>about|regarding|concerning|because of|because|to) (?P<rest>.+)",
        re.I,
    ),
    re.compile(
        r"\b(?:i want|i need|i would like|i'd like|i am trying|i'm trying|i wish|i was hoping) "
        r"(?P<lead>to) (?P<rest>.+)",
        re.I,
    ),
    re.compile(
        r"\bi(?:'ve| have)(?: got)? (?:a|another|some|one|a few) (?:quick )?"
        r"(?:questions?|problems?|issues?|complaints?|requests?) (?P<lead>about|with|regarding|on|"
        r"concerning) "
        r"(?P<rest>.+)",
        re.I,
    ),
    re.compile(
        r"\bi (?:need|want|would like) (?:some |your )?(?:help|information|assistance|advice) "
        r"(?P<lead>with|about|on) (?P<rest>.+)",
        re.I,
    ),
    re.compile(
        r"\b(?:the reason (?:for my call|i'm calling|i am calling|i call)|my (?:call|problem|issue|"
        r"request)) is "
        r"(?P<lead>about|because|to|that)? ?(?P<rest>.+)",
        re.I,
    ),
    re.compile(r"^(?:it's|it is|this is) (?P<lead>about) (?P<rest>.+)", re.I),
)  # fmt: skip
CALLING = re.compile(r"calling|phoning|ringing|writing|contacting|here|touch|called|call ", re.I)
NO_INTENT = re.compile(r"(?:know|ask|tell|say|hear|thank|be|see|add|give|correct|repeat|go|it|you)\b", re.I)

CORRECTION = re.compile(
    r"^(?P<opener>(?:(?:no|nope|sorry|wait|actually|correction|i mean|i meant|oops|that's wrong|"
    r"that is wrong|"
    r"that's not right|that is not right|i misspoke)[\s,.:!-]+)+)?"
    r"(?P<says>(?:it is|it's|its|that is|that's|that should be|it should be|make (?:that|it)|i meant|"
    r"i mean|"
    r"i said|it was|the right one is|the correct one is|should be)[\s,:]+)?"
    r"(?P<value>.+?)(?:,? (?:and )?not (?P<wrong>.+))?$",
    re.I,
)
NOT_BUT = re.compile(
    r"^(?:no[\s,]+)?(?:it's |it is |that's )?not (?P<wrong>.+?)(?:,? but |,? it's |,? it is |"
    r", )(?P<value>.+)$",
    re.I,
)
