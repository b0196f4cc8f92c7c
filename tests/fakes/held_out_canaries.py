"""Statements that nothing was ever tuned on: written before the summarizer was last changed.

Not to be looked at when the summarizer is worked on. What is measured here is what a user's own
wording can expect; a set that was tuned on says nothing of that. When it has been looked at, it
belongs to the others, and a new one is to be written first.
"""

from typing import Final

from tests.fakes.canaries import of_kind

ENGLISH: Final = (
    *of_kind(
        "rule",
        ("Nobody except Marta Lindqvist signs off on payouts.", ("Marta Lindqvist", "payouts")),
        ("Leave the seed data in fixtures/gold alone.", ("fixtures/gold", "alone")),
        ("The intern account stays read-only, full stop.", ("intern account", "read-only")),
        (
            "Anything that touches billing-core goes past two reviewers first.",
            ("billing-core", "two reviewers"),
        ),
        ("Patient names are to be kept out of every log line.", ("Patient names", "out of")),
        (
            "If the checksum differs you stop right there and call me.",
            ("checksum", "stop right there"),
        ),
    ),
    *of_kind(
        "constraint",
        ("The whole bundle has to fit into 240 kB gzipped.", ("fit into", "240 kB")),
        ("We have until 18 June to hand the audit in.", ("18 June", "audit")),
        ("Two GPUs is all we get, so plan for that.", ("Two GPUs", "all we get")),
        ("Latency above 80 ms means we lose the contract.", ("80 ms", "lose the contract")),
        ("Customers on the Basic plan get three exports a month.", ("Basic plan", "three exports")),
        ("Flights out of Bergen only, and nothing over 450 euros.", ("Bergen", "450 euros")),
    ),
    *of_kind(
        "fact",
        ("The bucket we write to is s3://tarn-exports-eu.", ("s3://tarn-exports-eu",)),
        ("Our auditor this year: Kestrelmoor & Finch.", ("Kestrelmoor & Finch",)),
        ("Door code at the warehouse, by the way: 4471#.", ("Door code", "4471#")),
        (
            "The old cluster was switched off in March, nobody told finance.",
            ("old cluster", "March", "finance"),
        ),
        ("Tomasz runs the night shift, his pager is 0299.", ("Tomasz", "0299")),
        ("She grew up in Trondheim and is allergic to hazelnuts.", ("Trondheim", "hazelnuts")),
    ),
    *of_kind(
        "state",
        ("I got as far as row 5,120 of the import.", ("row 5,120", "import")),
        (
            "Two of the five migrations went through; 0043 blew up.",
            ("Two of the five", "0043"),
        ),
        ("The parser works now, the printer still crashes on tabs.", ("printer", "tabs")),
        ("After lunch we tackle the refund webhook.", ("refund webhook",)),
        ("Legal has the contract, I expect it back on Tuesday.", ("contract", "Tuesday")),
        ("What's left is the Danish translation and the icons.", ("Danish translation", "icons")),
    ),
    *of_kind(
        "preference",
        ("Spare me the emojis.", ("emojis",)),
        ("Metric units suit me better than imperial.", ("Metric", "imperial")),
        ("I can't stand popups, so keep dialogs inline.", ("popups", "inline")),
        ("Short commit messages, present tense.", ("commit messages", "present tense")),
        ("A window seat makes me happy, near the front.", ("window seat", "near the front")),
        ("Call me Robbie, everyone does.", ("Robbie",)),
    ),
)

CHINESE: Final = (
    *of_kind(
        "rule",
        ("付款只有林美达能签字。", ("林美达", "签字")),
        ("fixtures/gold 里的种子数据谁也别动。", ("fixtures/gold", "别动")),
        ("实习生账号就让它保持只读。", ("实习生账号", "只读")),
        ("凡是涉及 billing-core 的改动都得先过两位评审。", ("billing-core", "两位评审")),
        ("日志里看不到病人姓名才行。", ("日志", "病人姓名")),
        ("校验和对不上就立刻停下来给我打电话。", ("校验和", "停下来")),
    ),
    *of_kind(
        "constraint",
        ("整个包压缩后得在240kB以内。", ("240kB", "以内")),
        ("审计材料6月18号之前要交上去。", ("6月18号", "审计")),
        ("我们只有两块GPU可用，按这个来排。", ("两块GPU",)),
        ("延迟超过80毫秒合同就丢了。", ("80毫秒", "合同")),
        ("基础版客户每月三次导出。", ("基础版", "三次导出")),
        ("机票从卑尔根出发，别超450欧元。", ("卑尔根", "450欧元")),
    ),
    *of_kind(
        "fact",
        ("我们写入的桶是 s3://tarn-exports-eu。", ("s3://tarn-exports-eu",)),
        ("今年的审计师：贝尔威瑟事务所。", ("贝尔威瑟事务所",)),
        ("对了，仓库门禁码4471#。", ("门禁码", "4471#")),
        ("旧集群三月份就关掉了，没人告诉财务。", ("旧集群", "三月", "财务")),
        ("夜班归托马斯管，呼机0299。", ("托马斯", "0299")),
        ("她在特隆赫姆长大，对榛子过敏。", ("特隆赫姆", "榛子过敏")),
    ),
    *of_kind(
        "state",
        ("我导入到第5120行了。", ("5120行",)),
        ("五个迁移成功了两个，0043炸了。", ("五个迁移", "0043")),
        ("解析器好了，打印那块碰到制表符还会崩。", ("打印", "制表符")),
        ("午饭后搞退款回调。", ("退款回调",)),
        ("合同在法务那儿，估计周二拿回来。", ("合同", "周二")),
        ("就差丹麦语翻译和图标了。", ("丹麦语翻译", "图标")),
    ),
    *of_kind(
        "preference",
        ("表情符号就免了吧。", ("表情符号",)),
        ("公制单位对我来说比英制顺手。", ("公制", "英制")),
        ("弹窗我受不了，对话框就放页面里。", ("弹窗", "页面里")),
        ("提交说明写短点，用现在时。", ("提交说明", "现在时")),
        ("靠窗坐我最开心，靠前一点。", ("靠窗", "靠前")),
        ("叫我小罗就行，大家都这么叫。", ("小罗",)),
    ),
)
