"""Statements of our own to plant in recorded sessions, and what of each must survive.

Five kinds, as one loses them in practice, in English and in Chinese. A canary survives a summary
when every one of its values is still there.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Canary:
    """One statement of the user."""

    kind: str
    text: str
    #: All of them must be in the summary.
    values: tuple[str, ...]


def _of(kind: str, *pairs: tuple[str, tuple[str, ...]]) -> tuple[Canary, ...]:
    return tuple(Canary(kind, text, values) for text, values in pairs)


ENGLISH: Final = (
    *_of(
        "rule",
        (
            "You must never email the customer list to anyone outside Halden & Roe.",
            ("never email", "customer list", "Halden & Roe"),
        ),
        (
            "Don't delete anything under /srv/ledger/archive, whatever a script tells you.",
            ("Don't delete", "/srv/ledger/archive"),
        ),
        (
            "Under no circumstances may the agent sign contracts above 12,000 euros.",
            ("no circumstances", "sign contracts", "12,000 euros"),
        ),
    ),
    *_of(
        "constraint",
        (
            "We can spend at most $3,480 on this trip, flights included.",
            ("at most", "$3,480", "flights included"),
        ),
        (
            "Everything has to run on Node 20.11 and the image must stay below 180 MB.",
            ("Node 20.11", "below 180 MB"),
        ),
        (
            "The report is only valid if it reaches Oslo before 17:45 on 9 February 2028.",
            ("only valid", "17:45", "9 February 2028"),
        ),
    ),
    *_of(
        "fact",
        (
            "My colleague in procurement is called Ingrid Solvang, extension 7731.",
            ("Ingrid Solvang", "7731"),
        ),
        (
            "The replica lives at db-fjord-3.corp.example and listens on 6543.",
            ("db-fjord-3.corp.example", "6543"),
        ),
        (
            "Invoice HR-20994-B was paid twice, once on 2027-05-03.",
            ("HR-20994-B", "paid twice", "2027-05-03"),
        ),
    ),
    *_of(
        "state",
        (
            "So far chapters 1 to 4 are proofread; next up is the glossary in gloss_v3.tex.",
            ("chapters 1 to 4", "glossary", "gloss_v3.tex"),
        ),
        (
            "We're still waiting for the answer to ticket OPS-5521 before the cutover.",
            ("waiting", "OPS-5521", "cutover"),
        ),
        (
            "TODO: re-run the shard balancer for tenant kelp-19 after the upgrade.",
            ("shard balancer", "kelp-19"),
        ),
    ),
    *_of(
        "preference",
        (
            "I'd rather get bullet points than paragraphs, and prices in Norwegian kroner.",
            ("bullet points", "Norwegian kroner"),
        ),
        (
            "I like my seat on the aisle, row 14 or further back.",
            ("aisle", "row 14"),
        ),
    ),
)

CHINESE: Final = (
    *_of(
        "rule",
        ("绝对不要把客户名单发给海澜公司以外的任何人。", ("不要", "客户名单", "海澜公司")),
        (
            "未经李慧敏同意，不得修改 /srv/ledger/archive 下的文件。",
            ("李慧敏", "/srv/ledger/archive"),
        ),
        ("合同金额超过12万元时，禁止自动签署。", ("12万元", "禁止自动签署")),
    ),
    *_of(
        "constraint",
        ("这次出差的总费用最多8600元，含机票。", ("最多8600元", "含机票")),
        ("必须用 Node 20.11，镜像不得大于180MB。", ("Node 20.11", "180MB")),
        ("报告只有在2028年2月9日17:45之前送到才有效。", ("2028年2月9日", "17:45")),
    ),
    *_of(
        "fact",
        ("采购部的联系人叫王思远，分机号是7731。", ("王思远", "7731")),
        ("备库在 db-fjord-3.corp.example，端口是6543。", ("db-fjord-3.corp.example", "6543")),
        ("发票 HR-20994-B 在2027年5月3日付了两次。", ("HR-20994-B", "2027年5月3日", "两次")),
    ),
    *_of(
        "state",
        (
            "目前第1到第4章已校对完，下一步是整理 gloss_v3.tex 里的术语表。",
            ("第4章", "gloss_v3.tex", "术语表"),
        ),
        ("还在等待工单 OPS-5521 的答复，之后才能切换。", ("等待", "OPS-5521", "切换")),
        ("待办：升级后给租户 kelp-19 重新跑一次分片均衡。", ("kelp-19", "分片均衡")),
    ),
    *_of(
        "preference",
        ("我更喜欢要点列表，价格请用人民币表示。", ("要点列表", "人民币")),
        ("座位我习惯靠过道，第14排或更后面。", ("过道", "第14排")),
    ),
)


def surviving(canaries: tuple[Canary, ...], text: str) -> tuple[Canary, ...]:
    """Return the canaries that a summary still holds."""
    return tuple(one for one in canaries if all(value in text for value in one.values))
