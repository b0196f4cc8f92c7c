"""What kind of statement it is, by the words that rules, decisions and wishes are made of.

    "Never push to main without a review."   a rule
    "我更喜欢简短的回答。"                    a preference
    "Next: wire up the parser."              state of the task
    "The cap is now $900 instead of $700."   takes the place of an earlier statement

The tables hold function words and the plain verbs of each language; what a conversation is about
never stands in them. A statement in a language that no table knows is still judged by its shape:
the identifiers, numbers and names in it.
"""

# The tables hold the punctuation and the words of other scripts.
# ruff: noqa: RUF001

import re
import unicodedata
from typing import Final

from app.core.compaction.ledger import LedgerClass
from app.core.compaction.statements import NEGATION, any_of, word_count

#: Words beside small talk that tell something.
MIN_TOLD_WORDS: Final = 2

# Words that forbid or demand whatever the rest of the sentence says.
_STRONG_RULE: Final = any_of(
    r"\b(?:never|must(?:n't)?|shall|always|no exceptions?)\b",
    r"\b(?:under no circumstances|no matter what|whatever happens)\b",
    r"\b(?:do not|don['’]t|may not|cannot|can['’]t ever|is not to|are not to|not be allowed)\b",
    r"\b(?:forbidden|prohibited|mandatory|off[- ]limits|strictly|required to|not permitted)\b",
    # "No weekend deploys." forbids; "no errors so far" tells.
    r"^(?:[^:]{1,40}: *)?no (?!one\b|problem|errors?\b|issues?\b|worries)[a-z]",
    r"^only\b|\bonly (?:if|when|after|with|by|use|the)\b|\bunless\b"
    r"|\bno more than\b|\bat (?:most|least)\b",
    r"\b(?:hard|upper|lower|absolute) (?:limit|cap|constraint|requirement|deadline)\b",
    r"\bwithout (?:\w+ ){0,3}(?:approval|permission|consent|confirm\w*|review|authori[sz]ation)\b",
    # Orders for all that follows.
    r"\b(?:from (?:now|here|this point) on(?:wards?)?|going forward|henceforth)\b"
    r"|\bonly[.!]?$|\bask (?:me|us) (?:first|before)\b|\bplease not\b"
    r"|^(?:please )?(?:stick to|stop \w+ing|(?:limit|restrict|confine) yourself|refrain from)\b"
    r"|^(?:please )?(?:reply|answer|respond|speak|write) (?:\w+ )?in"
    r" (?!the\b|an?\b|this\b|that\b|my\b|our\b)\w+"
    r"|^(?:please )?keep (?:your|all|every|the (?:tone|style|format|answers?|replies))\b",
    r"从现在起|从今以后|今后|以后(?:都|请|只)"
    r"|\b(?:ab (?:jetzt|sofort)|künftig|in zukunft|désormais|dorénavant|à partir de maintenant"
    r"|(?:de ahora )?en adelante|a partir de ahora|d['’]ora in poi|doravante)\b"
    r"|今後は|これからは|앞으로는?|이제부터",
    r"不要|不得|不能|不可以?|不许|不准|不应|禁止|严禁|切勿|请勿|绝不|决不|从不|永远|始终|一律|一概|千万别|总是",
    r"必须|务必|必需|一定要|只能|仅限|只准|只允许|只可|除非|未经|不超过|不得超过|至多|最多|至少"
    r"|不少于",
    r"\b(?:niemals?|immer|darf nicht|müssen|muss|verboten|nicht ohne)\b",
    r"\b(?:jamais|toujours|ne doit pas|doit|doivent|interdit|obligatoire)\b",
    r"\b(?:nunca|siempre|debe|deben|prohibido|obligatorio|sempre|deve|proibido)\b",
    r"絶対に|必ず|してはいけ|しないで|禁止|べからず|なければなら|하지 마|반드시|절대|금지",
)
#: "Could you please ...?" asks for nothing but that it is done.
_POLITE_ORDER: Final = any_of(
    r"^\W*(?:could|can|will|would) you (?:please|kindly|mind)\b",
    r"^\W*(?:könntest du|würdest du|pourriez[- ]vous|podrías?|poderia)\b",
    r"^\W*(?:能不能|可以|可不可以|能否|麻烦)请?你?",
)
# Words that often limit, and often only describe.
_WEAK_RULE: Final = any_of(
    r"\b(?:should(?:n't)?|ought to|make sure|ensure that|avoid|refuse|escalate)\b",
    r"\bkeep .{1,40} (?:under|below|within)\b",
    r"\b(?:budget|deadline|cap|limit|maximum|quota|ceiling|constraint)\b.{0,40}\d",
    r"\b(?:requirement|not allowed|not exceed|no later than|due (?:on|by)|policy)\b",
    r"\b(?:ask (?:me|us) (?:first|before)|before (?:you|any|each|every))\b",
    r"应该?|需要?先|避免|确保|拒绝|之前先|先.{1,12}再",
    r"(?:截止|期限|预算|上限|下限|限制|要求|规定|规则|约束).{0,20}[\d一二三四五六七八九十百千万]",
)
_PREFERENCE: Final = any_of(
    r"\b(?:prefer(?:s|red|ences?|ably)?|(?:would|['’]d) rather|rather than|favou?rite"
    r"|i(?:['’]d)? (?:like|love|hate|want)"
    r"|likes?|dislikes?|i enjoy|style|tone of|please (?:use|keep|write|answer|reply|format))\b",
    r"喜欢|偏好|偏爱|更愿意|宁愿|希望|习惯|倾向|最好|请用|请以|讨厌|不喜欢|口味|风格",
    r"\b(?:bevorzug\w+|lieber|préfér\w+|prefier\w+|prefir\w+)\b|好む|好み|好き|선호",
)
_DECISION: Final = any_of(
    r"\b(?:decided?|decision|agreed?|agreement|chose|chosen|settled on|going with|go with"
    r"|let['’]s (?:use|go|keep|take)"
    r"|we(?:['’]ll| will) (?:use|go|keep|take|adopt|ship)|adopt(?:ed)?|approved?|confirmed?"
    r"|switch(?:ed)? to|opted)\b",
    r"决定|确定|选定|选择|采用|改用|同意|批准|定为|敲定|选用|通过了|商定",
    r"\b(?:entschieden|décidé|decidido|acordado)\b|決定|決めた|결정",
)
_STATE: Final = any_of(
    r"\b(?:to-?do|next(?: steps?| up| is|,|:)|remain(?:s|ing)|in progress|currently|right now"
    r"|so far|left off|resume"
    r"|status|goal|objective|milestone|task|blocked|waiting (?:for|on)|pending|finished"
    r"|completed|done|still (?:need|open|to)"
    r"|working on|step \d+|phase \d+|checkpoint|halfway|base commit|handoff|hand over)\b",
    r"待办|下一步|接下来|然后要|目前|当前|现在正|正在|进行中|已完成|完成了|未完成|尚未|剩余"
    r"|还剩|还需|阻塞|等待|目标|进度|任务|阶段|里程碑",
    r"\b(?:nächste\w*|prochaine étape|siguiente paso)\b|次の|現在|進行中|다음 단계|현재",
)
_OPEN: Final = any_of(
    r"\b(?:open question|unclear|tbd|to be (?:decided|determined|confirmed)"
    r"|not (?:yet )?(?:sure|decided|known)|undecided|unresolved|need to find out)\b",
    r"待定|未定|不确定|还不清楚|尚不清楚|未决|没想好",
)
_UPDATE: Final = any_of(
    r"\b(?:now|new|instead|no longer|from now on|as of|changed?|updat\w+|replac\w+|supersed\w+"
    r"|revis\w+|correct(?:ion|ed)|actually"
    r"|raised?|lower(?:ed)?|increased?|reduced?|cut to|extended|moved|pushed|postponed"
    r"|overrid\w+|scrap|forget|rather than the)\b",
    r"改为|改成|更新|更改|变更|替换|取代|代替|不再|从现在起|调整|更正|修正|提高到|降低到|降到"
    r"|升到|延期|推迟|提前到|作废|如今|现在",
)
_EMPHASIS: Final = any_of(
    r"\b(?:important|remember|note(?: that)?|keep in mind|critical|crucial|for the record"
    r"|reminder|warning|attention|fyi)\b",
    r"重要|记住|记得|注意|请注意|务必|关键|警告|提醒|备注|切记",
    r"\b(?:wichtig|importante?|attention)\b|重要|覚えて|중요",
)
#: "Label: text", in English capitals or a few words of any language.
_LABEL: Final = re.compile(r"^\W{0,3}([^\s:：][^:：.。!?！？\n]{0,38})[:：]\s*(?=\S)")
#: Labels that name the kind of what follows, and say nothing once it stands under its heading.
_LABEL_CLASSES: Final = (
    (
        LedgerClass.RULE,
        any_of(
            r"\b(?:rules?|constraints?|requirements?|limits?|polic(?:y|ies))\b",
            r"规则|约束|限制|要求|禁令|规定",
        ),
    ),
    (LedgerClass.PREFERENCE, any_of(r"\bpreferences?\b", r"偏好|喜好")),
    (LedgerClass.DECISION, any_of(r"\bdecisions?\b", r"决定|决策")),
    (
        LedgerClass.STATE,
        any_of(
            r"\b(?:goals?|state|status|tasks?|next(?: steps?)?|to-?do|progress)\b",
            r"目标|状态|进度|任务|待办|下一步",
        ),
    ),
    (LedgerClass.QUESTION, any_of(r"\b(?:open )?questions?\b", r"问题|待定")),
    (
        LedgerClass.FACT,
        any_of(
            r"\b(?:facts?|infos?|information|context|background|notes?|reminders?|fyi|important)\b",
            r"事实|信息|背景|备注|注意|提醒|重要",
        ),
    ),
)
#: Words of a label that say no more than that what follows is of its kind.
_LABEL_QUALIFIER: Final = any_of(
    r"\b(?:hard|soft|strict|firm|safety|user(?:['’]s)?|my|our|the|a|an|one|more|another|key|main"
    r"|important|current|general|open|quick|side|new|last|first)\b",
    r"用户|安全|硬性|重要|当前|我|我们|你|的|新|主要|一般|一条|几个|补充",
)
_QUESTION_END: Final = re.compile(r"[?？]\W*$|[吗呢么]\W*$")
_COPULA: Final = any_of(
    r"\b(?:is|are|was|were|has|have|named?|called|lives?|uses?|runs?|costs?|belongs?|owns?"
    r"|stands for|means)\b|[=:]",
    r"是|为|叫|在|位于|使用|等于|属于|有|负责|：",
)
_POINTING: Final = any_of(
    r"\b(?:it|its|them|they|their|this|that|these|those|he|she|him|her|both|neither)\b",
    r"[它其此]|这个|那个|这些|那些|他们?|她们?|该",
)
# What keeps a conversation going and says nothing by itself.
_SMALL_TALK: Final = any_of(
    r"\b(?:hi|hello|hey|thanks?|thank|thx|cheers|welcome|bye|morning|evening|please|ok(?:ay)?"
    r"|ye(?:s|ah|p)|no(?:pe)?|sure|right|exactly|indeed|great|good|nice|perfect|cool|fine|awesome"
    r"|excellent|wonderful|lovely|well|go(?:ing)?|ahead|continue|carry|proceed|keep|let(?:['’]s)?"
    r"|try|do|does|did|done|look(?:s|ing)?|see|sounds?|seems?|works?|working|help(?:s|ful)?|hope"
    r"|know|think|guess|again|now|then|next|so|far|on|and|but|or|if|when|as|the|an?|with|to|for|of"
    r"|in|at|is|are|was|be|i|i['’](?:m|ll|ve|d)|you|your|we|us|me|my|it|it['’]s|that|that['’]s"
    r"|this|there|all|just|really|very|much|more|lot|bit|also|too|can|could|would|will|may|have"
    r"|has|what|how|who|any|anything|something|everything|one|thing)\b",
    r"好的?|谢谢|多谢|感谢|辛苦|请|继续|可以|没问题|没错|嗯|对|是的|行|不错|很|太|明白|知道|了解|你好"
    r"|您好|再见|早上好|下去|接着|看看|一下|我们|你们|[你您我吧了啊呢哦吗嘛呀的来做先再就也]",
)
_CODE_LIKE: Final = re.compile(
    r"[{};,(\[]\s*$|^\s*(?:def|class|import|from|const|let|var|return|fn|func|public)\b.*[:;{(=]"
    r"|=>|</|\|\s*\||^\s*(?:\d+[:|]|[{}\[\]<>$%|+@/]|--|//|#!)|\w\(\w*\)|\w = \w|\S{90}"
    r"|\b[A-Z]\w*(?:Error|Exception|Warning)\b|^\s*File \"|^\s*Traceback\b"
    # Diagnostics of tools, and the lines they draw.
    r"|^\W*(?:error|warning|warn|info|debug|note)\b[:\]]|[\u2500-\u257f]"
)
#: Of other scripts than Latin any two letters, or no sentence in them would be one.
_PLAIN_WORD: Final = re.compile(r"\b[A-Za-z]?[a-zà-ÿ]{2,}\b|[^\W\d_\u0000-\u024f]{2}")
#: What a sentence is written with, beside letters, digits and blanks.
_PUNCTUATION: Final = frozenset(".,;:!?'’\"-–—()/%$€£¥&@#“”。，！？、：；（）「」《》…")
#: Above these parts of symbols and of digits a line is data.
_MOST_SYMBOLS: Final = 0.06
_MOST_DIGITS: Final = 0.5


def label_of(text: str) -> tuple[str, LedgerClass | None]:
    """Return the label in front of a statement, colon and blanks included, and what it says.

    ``""`` without one; None for a label that names no kind.
    """
    match = _LABEL.match(text)
    if match is None:
        return "", None
    label = match[1]
    for kind, pattern in _LABEL_CLASSES:
        if pattern.search(label):
            return match[0], kind
    return match[0], None


def is_bare(label: str) -> bool:
    """Tell whether a label only names the kind of what follows, and no matter of its own.

    "Hard constraint:" does; "Budget limit:" says what is limited.
    """
    rest = _LABEL_QUALIFIER.sub(" ", label)
    for _, pattern in _LABEL_CLASSES:
        rest = pattern.sub(" ", rest)
    return word_count(rest) == 0


def class_of(text: str) -> LedgerClass | None:
    """Return the kind of a statement that someone made, None for one that only tells something."""
    _, labelled = label_of(text)
    # What stands behind "Question:" may tell something before it asks.
    if labelled not in (None, LedgerClass.FACT, LedgerClass.QUESTION):
        return labelled
    is_order = _POLITE_ORDER.search(text) and _STRONG_RULE.search(text)
    if not is_order and (is_open_question(text) or asks(text)):
        return LedgerClass.QUESTION
    if _STRONG_RULE.search(text):
        # "I always prefer tea" is a wish, and so is "never use emoji, I hate them".
        is_wish = _PREFERENCE.search(text) and not NEGATION.search(text)
        return LedgerClass.PREFERENCE if is_wish else LedgerClass.RULE
    if _PREFERENCE.search(text):
        return LedgerClass.PREFERENCE
    if _DECISION.search(text):
        return LedgerClass.DECISION
    if labelled is LedgerClass.FACT:
        return LedgerClass.FACT
    if _WEAK_RULE.search(text):
        return LedgerClass.RULE
    if _STATE.search(text):
        return LedgerClass.STATE
    return None


def is_strong_rule(text: str) -> bool:
    """Tell whether a rule is one whatever else its sentence says, or by its label."""
    return _STRONG_RULE.search(text) is not None or label_of(text)[1] is LedgerClass.RULE


def is_open_question(text: str) -> bool:
    """Tell whether the statement itself says that something is not settled."""
    return _OPEN.search(text) is not None


def asks(text: str) -> bool:
    """Tell whether the statement ends as a question does."""
    return _QUESTION_END.search(text) is not None


def is_update(text: str) -> bool:
    """Tell whether the statement says that it takes the place of another."""
    return _UPDATE.search(text) is not None


def is_emphatic(text: str) -> bool:
    """Tell whether the speaker asks to remember it."""
    return _EMPHASIS.search(text) is not None


def tells_of_something(text: str) -> bool:
    """Tell whether the statement says what something is, or has, or is called."""
    return _COPULA.search(text) is not None


def is_small_talk(text: str) -> bool:
    """Tell whether the statement only greets, thanks, agrees or asks to go on."""
    return told_words(text) < MIN_TOLD_WORDS


def told_words(text: str) -> int:
    """Return of how many words the text is without those of small talk."""
    return word_count(_SMALL_TALK.sub(" ", text))


def points_back(text: str) -> bool:
    """Tell whether the statement may need the one before it to be understood."""
    return _POINTING.search(text) is not None


def is_heading(text: str) -> bool:
    """Tell whether the line only announces what follows."""
    return text.endswith((":", "："))


def is_prose(text: str) -> bool:
    """Tell whether a line is more likely a sentence than code, markup or a table."""
    if _CODE_LIKE.search(text) or not _PLAIN_WORD.search(text):
        return False
    digits = sum(character.isdigit() for character in text)
    symbols = sum(_is_symbol(character) for character in text)
    return symbols <= _MOST_SYMBOLS * len(text) and digits <= _MOST_DIGITS * len(text)


def _is_symbol(character: str) -> bool:
    """Tell whether a character is no part of words; vowel signs of some scripts are no letters."""
    return (
        not character.isalnum()
        and not character.isspace()
        and character not in _PUNCTUATION
        and not unicodedata.category(character).startswith("M")
    )
