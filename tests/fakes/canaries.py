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


def of_kind(kind: str, *pairs: tuple[str, tuple[str, ...]]) -> tuple[Canary, ...]:
    """Return canaries of one kind, from their texts and values."""
    return tuple(Canary(kind, text, values) for text, values in pairs)


ENGLISH: Final = (
    *of_kind(
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
        ("Payments go out only once Helen has countersigned.", ("Helen", "countersigned")),
        ("Hands off the prod replica in Reykjavik.", ("Hands off", "Reykjavik")),
        (
            "The board deck is confidential and stays inside the company.",
            ("board deck", "confidential", "inside the company"),
        ),
        ("Refunds over 90 pounds need a manager.", ("90 pounds", "manager")),
        ("Check with me before anything leaves the outbox.", ("Check with me", "outbox")),
        ("Guests see prices rounded, no exceptions for anyone.", ("rounded", "no exceptions")),
        ("Keep the word 'guarantee' out of the copy.", ("guarantee", "out of")),
        ("Nothing gets merged while the freeze is on.", ("merged", "freeze")),
    ),
    *of_kind(
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
        ("The tender closes on 3 October at noon.", ("3 October", "noon")),
        ("We're stuck with Postgres 13 until the migration.", ("Postgres 13",)),
        ("The tablet has 2 GB of memory and no network.", ("2 GB", "no network")),
        ("There's room for 36 people, not one more.", ("36 people", "not one more")),
        ("I can spare about four hours a week for this.", ("four hours a week",)),
        ("The label printer takes 62 mm tape, nothing else.", ("62 mm",)),
        ("Anything slower than 200 ms the users notice.", ("200 ms",)),
        ("My diet: no dairy, no nuts, low salt.", ("no dairy", "no nuts", "low salt")),
        ("Budget limit: 4,100 euros for the fair.", ("Budget limit", "4,100 euros")),
    ),
    *of_kind(
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
        ("Our landlord, Mrs Petrova, speaks Bulgarian and some German.", ("Petrova", "Bulgarian")),
        ("The boat is moored at pier 9.", ("pier 9",)),
        (
            "Wifi password for the guests is taped under the router.",
            ("password", "under the router"),
        ),
        ("Back in 2019 we moved off Heroku because of the bill.", ("2019", "Heroku")),
        ("The dog answers to Biscuit.", ("Biscuit",)),
        ("Staging talks to the sandbox account acc_7Q2x.", ("acc_7Q2x",)),
        ("There are three suppliers, Ovik being the cheapest.", ("three suppliers", "Ovik")),
        ("Sales peak in November and again around Easter.", ("November", "Easter")),
    ),
    *of_kind(
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
        ("I've fixed the header, the footer is still broken on Safari.", ("footer", "Safari")),
        (
            "Half of the invoices are scanned, starting from the newest.",
            ("Half of the invoices", "newest"),
        ),
        ("We got stuck on the SSO redirect yesterday.", ("SSO redirect",)),
        ("Tomorrow morning I'd like to look at the churn query.", ("churn query",)),
        ("The vendor owes us a reply about the valve.", ("vendor", "valve")),
        ("Draft two of the speech is done, the ending isn't.", ("Draft two", "ending")),
        ("Then there's the question of who pays the customs fee.", ("customs fee",)),
        ("I gave up on the vector index for now.", ("vector index",)),
    ),
    *of_kind(
        "preference",
        (
            "I'd rather get bullet points than paragraphs, and prices in Norwegian kroner.",
            ("bullet points", "Norwegian kroner"),
        ),
        (
            "I like my seat on the aisle, row 14 or further back.",
            ("aisle", "row 14"),
        ),
        ("Tables beat prose for me.", ("Tables", "prose")),
        ("No need to be so formal.", ("formal",)),
        (
            "I'm more of a morning person, schedule calls before ten.",
            ("morning person", "before ten"),
        ),
        ("Dark mode screenshots, if you can.", ("Dark mode",)),
        ("Answer in Portuguese when it's about the family.", ("Portuguese", "family")),
        ("I enjoy a good pun now and then.", ("pun",)),
        ("Coffee black, two sugars.", ("black", "two sugars")),
        ("Explain it to me as you would to a ten-year-old.", ("ten-year-old",)),
    ),
)

CHINESE: Final = (
    *of_kind(
        "rule",
        ("绝对不要把客户名单发给海澜公司以外的任何人。", ("不要", "客户名单", "海澜公司")),
        (
            "未经李慧敏同意，不得修改 /srv/ledger/archive 下的文件。",
            ("李慧敏", "/srv/ledger/archive"),
        ),
        ("合同金额超过12万元时，禁止自动签署。", ("12万元", "禁止自动签署")),
        ("款项要等何琳会签之后才放出去。", ("何琳", "会签")),
        ("雷克雅未克的生产副本碰都别碰。", ("雷克雅未克", "别碰")),
        ("董事会的材料属于机密，留在公司内部。", ("董事会", "机密")),
        ("退款九十镑以上得找经理。", ("九十镑", "经理")),
        ("发件箱里的东西发出去前问我一声。", ("发件箱", "问我")),
        ("文案里把“保证”这个词去掉。", ("保证", "去掉")),
        ("冻结期间谁都不合并代码。", ("冻结", "合并")),
    ),
    *of_kind(
        "constraint",
        ("这次出差的总费用最多8600元，含机票。", ("最多8600元", "含机票")),
        ("必须用 Node 20.11，镜像不得大于180MB。", ("Node 20.11", "180MB")),
        ("报告只有在2028年2月9日17:45之前送到才有效。", ("2028年2月9日", "17:45")),
        ("投标十月三号中午截止。", ("十月三号", "中午")),
        ("迁移之前我们就卡在Postgres 13上。", ("Postgres 13",)),
        ("平板是2GB内存，没有网络。", ("2GB", "没有网络")),
        ("位子就36个，多一个都坐不下。", ("36个",)),
        ("这事我每周大概能抽四个小时。", ("四个小时",)),
        ("打印机用62毫米的纸带，别的放不进去。", ("62毫米",)),
        ("我忌口：不吃乳制品、坚果，少盐。", ("乳制品", "坚果", "少盐")),
        ("预算上限：展会4100欧元。", ("预算上限", "4100欧元")),
    ),
    *of_kind(
        "fact",
        ("采购部的联系人叫王思远，分机号是7731。", ("王思远", "7731")),
        ("备库在 db-fjord-3.corp.example，端口是6543。", ("db-fjord-3.corp.example", "6543")),
        ("发票 HR-20994-B 在2027年5月3日付了两次。", ("HR-20994-B", "2027年5月3日", "两次")),
        ("房东彼得洛娃太太会说保加利亚语。", ("彼得洛娃", "保加利亚语")),
        ("船停在9号码头。", ("9号码头",)),
        ("访客的无线密码贴在路由器底下。", ("密码", "路由器底下")),
        ("2019年因为账单太贵我们离开了Heroku。", ("2019年", "Heroku")),
        ("那只狗叫饼干。", ("饼干",)),
        ("测试环境连的是沙箱账户acc_7Q2x。", ("acc_7Q2x",)),
        ("十一月和复活节前后卖得最好。", ("十一月", "复活节")),
    ),
    *of_kind(
        "state",
        (
            "目前第1到第4章已校对完，下一步是整理 gloss_v3.tex 里的术语表。",
            ("第4章", "gloss_v3.tex", "术语表"),
        ),
        ("还在等待工单 OPS-5521 的答复，之后才能切换。", ("等待", "OPS-5521", "切换")),
        ("待办：升级后给租户 kelp-19 重新跑一次分片均衡。", ("kelp-19", "分片均衡")),
        ("页眉修好了，页脚在Safari上还是坏的。", ("页脚", "Safari")),
        ("发票扫了一半，从最新的开始。", ("一半", "最新")),
        ("昨天我们卡在单点登录跳转那里。", ("单点登录",)),
        ("明早我想看看流失率那条查询。", ("流失率",)),
        ("厂家还欠我们一个阀门的答复。", ("厂家", "阀门")),
        ("讲稿第二稿写完了，结尾还没有。", ("第二稿", "结尾")),
        ("向量索引我暂时放弃了。", ("向量索引",)),
    ),
    *of_kind(
        "preference",
        ("我更喜欢要点列表，价格请用人民币表示。", ("要点列表", "人民币")),
        ("座位我习惯靠过道，第14排或更后面。", ("过道", "第14排")),
        ("对我来说表格比大段文字好懂。", ("表格", "大段文字")),
        ("不用这么客气。", ("客气",)),
        ("我早上精神好，会议安排在十点前。", ("早上", "十点前")),
        ("截图来深色模式的吧。", ("深色模式",)),
        ("说到家里的事就用葡萄牙语回答。", ("葡萄牙语", "家里")),
        ("咖啡不加奶，两块糖。", ("不加奶", "两块糖")),
        ("就当讲给十岁孩子听那样解释。", ("十岁孩子",)),
    ),
)


def surviving(canaries: tuple[Canary, ...], text: str) -> tuple[Canary, ...]:
    """Return the canaries that a summary still holds."""
    return tuple(one for one in canaries if all(value in text for value in one.values))
