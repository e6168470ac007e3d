"""Write corpus.jsonl: texts, one JSON string a line, on which the Worker's tokenizer and Python's must agree.

Sentences written for this project in many languages, edge cases by hand, and seeded mixtures of both.
"""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path

SENTENCES = [
    # English
    "Where is my parcel? It was due on Tuesday and nobody has called.",
    "I'd like a refund for order #48213-B, please; the lamp arrived broken.",
    "The quick brown fox jumps over the lazy dog's back.",
    "Can't, won't, shouldn't've: contractions — with dashes – and 'quotes'.",
    "Antidisestablishmentarianism is 28 letters long, isn't it?",
    "Prices rose 3.5% (from $1,299.00 to $1,344.47) on 2026-11-30 at 15:11:09 UTC.",
    "THE SHOUTING CUSTOMER WROTE EVERYTHING IN CAPITALS!!!",
    "naïve café résumé coöperate façade piñata jalapeño",
    # German
    "Wo bleibt mein Paket? Es sollte längst geliefert worden sein.",
    "Die Straßenbahnhaltestelle am Königsplatz ist wegen Bauarbeiten gesperrt.",
    "Ich möchte bitte mein Geld zurück, die Größe passt überhaupt nicht.",
    "Donaudampfschifffahrtsgesellschaftskapitän ist ein langes Wort.",
    "GROẞBUCHSTABEN mit ẞ und ß, außerdem „Anführungszeichen“.",
    # French
    "Où est mon colis ? Il devait arriver mardi à l'aube.",
    "L'œuvre de cet élève naïf a été très appréciée à Noël.",
    "Je voudrais être remboursé, s'il vous plaît ; ça ne marche pas.",
    "Aujourd'hui, c'est l'été : « quelle chaleur ! »",
    # Spanish
    "¿Dónde está mi paquete? ¡Tenía que llegar ayer por la mañana!",
    "El pingüino y el niño comieron jamón ibérico en A Coruña.",
    "Quisiera la devolución del dinero, por favor.",
    # Italian, Portuguese, Dutch, Polish, Czech, Turkish, Romanian, Hungarian, Icelandic
    "Perché il mio ordine non è ancora arrivato? È già martedì.",
    "A minha encomenda não chegou; quero o reembolso já, não amanhã.",
    "Waar blijft mijn pakket? Eén stuk ontbreekt, geëerde klant.",
    "Zażółć gęślą jaźń, proszę o zwrot pieniędzy za łóżko.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "İstanbul'da ıslak kaldırımlar; DİKKAT, I ve İ farklı harflerdir.",
    "Câţi bani mi se înapoiază? Știu că țara e mare.",
    "Árvíztűrő tükörfúrógép, kérem vissza a pénzemet.",
    "Þórður á Ísafirði sagði: „Það er kalt í dag.“",
    # Russian, Ukrainian, Bulgarian, Greek, Georgian, Armenian
    "Где моя посылка? Её должны были доставить ещё во вторник.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Їжак з'їв яблуко в Києві, ґудзик загубився.",
    "Къде е моята пратка? Искам си парите обратно.",
    "Πού είναι το δέμα μου; Ἐν ἀρχῇ ἦν ὁ λόγος. ΣΊΣΥΦΟΣ ς σ.",
    "სად არის ჩემი ამანათი?",
    "Որտե՞ղ է իմ ծանրոցը։",
    # Chinese, Japanese, Korean
    "我的包裹在哪里？应该星期二就送到了。",
    "請問可以退款嗎？檯燈送來的時候就壞了。",
    "机器学习模型可以在网络边缘运行。",
    "𠮷野家在𡃁仔街的𠀋處。",
    "私の荷物はどこですか？火曜日に届くはずでした。",
    "機械学習モデルをエッジで動かす。ﾊﾝｶｸｶﾅも使う。",
    "がぎぐげご パピプペポ ヴァイオリン ー々〆",
    "ﾊﾟｿｺﾝとＦＵＬＬ　ＷＩＤＴＨの１２３",
    "제 소포는 어디에 있나요? 화요일에 도착했어야 합니다.",
    "환불을 원합니다. 램프가 부서져서 왔어요ㅠㅠ ㅋㅋㅋ",
    # Arabic, Persian, Urdu, Hebrew, Yiddish
    "أين طردي؟ كان من المفترض أن يصل يوم الثلاثاء.",
    "بِسْمِ ٱللَّهِ ٱلرَّحْمَـٰنِ ٱلرَّحِيمِ",
    "می‌خواهم پولم را پس بگیرم؛ چراغ شکسته بود. ۱۲۳۴۵",
    "میرا پارسل کہاں ہے؟ ٹھیک نہیں ہے۔",
    "איפה החבילה שלי? היא הייתה אמורה להגיע ביום שלישי.",
    "בְּרֵאשִׁית בָּרָא אֱלֹהִים",
    "אַ שיינעם דאַנק",
    # Indic and South-East Asian
    "मेरा पार्सल कहाँ है? मुझे मंगलवार को मिलना था।",
    "ज़िंदगी क़लम फ़ोन — हिन्दी में नुक़्ता।",
    "আমার পার্সেল কোথায়? মঙ্গলবারে আসার কথা ছিল।",
    "என் பார்சல் எங்கே? செவ்வாய்க்கிழமை வர வேண்டும்.",
    "నా పార్సెల్ ఎక్కడ ఉంది?",
    "ನನ್ನ ಪಾರ್ಸೆಲ್ ಎಲ್ಲಿದೆ?",
    "എന്റെ പാഴ്സൽ എവിടെയാണ്?",
    "මගේ පාර්සලය කොහෙද?",
    "พัสดุของฉันอยู่ที่ไหน ควรจะมาถึงวันอังคาร",
    "ขอเงินคืนได้ไหมครับ โคมไฟแตกน้ำท่วมกรุงเทพฯ",
    "ພັດສະດຸຂອງຂ້ອຍຢູ່ໃສ",
    "កញ្ចប់របស់ខ្ញុំនៅឯណា",
    "ကျွန်တော့်ပါဆယ်ဘယ်မှာလဲ",
    "Gói hàng của tôi ở đâu? Lẽ ra phải đến hôm thứ Ba.",
    "Tôi muốn được hoàn tiền, đèn bị vỡ mất rồi ạ.",
    "དབུ་ཅན་ བོད་སྐད།",
    "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "የእኔ እሽግ የት ነው?",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ꭳꭶ",
]

EMOJI = [
    "😀", "😀😃😄", "👍🏽", "👍🏻👍🏿", "👨‍👩‍👧‍👦", "👩🏾‍💻 codes", "🏳️‍🌈", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇩🇪🇫🇷", "❤️", "❤", "☺︎ ☺️", "1️⃣2️⃣", "#️⃣",
    "great 👌🏼👌🏼 service", "🤷🏽‍♀️🤷‍♂️", "🫠🫡🪿", "♥♦♣♠", "¯\\_(ツ)_/¯", "(╯°□°)╯︵ ┻━┻", "ʕ•ᴥ•ʔ", "✅❌⚠️", "🧑‍🚀🚀",
]

EDGE = [
    "", " ", "   ", "\t", "\n", "\r\n", "\n\n\n", "\u00a0", "\u3000", "\u2003\u2009\u200a", "\u1680", "\u2028\u2029",
    "\u0085", "\u000b\u000c", "\u001c\u001d\u001e\u001f", "\ufeff", "\ufeffWith a BOM", "in\ufeffside", "\u200b", "zero\u200bwidth",
    "zero\u200cwidth", "zero\u200dwidth", "word\u2060joiner", "soft\u00adhyphen", "left\u200eto\u200fright", "\u202aembed\u202c",
    "nul\u0000inside", "\u0000", "\u0001\u0002\u0003", "bell\u0007", "esc\u001b[31mred\u001b[0m", "del\u007f", "c1\u0080\u0099", "repl\ufffdacement",
    "a\tb\nc\rd", "tabs\t\tand\u00a0spaces", "line\u2028sep", "para\u2029sep", "nel\u0085line", "vt\u000bff\u000c", "ideographic\u3000space",
    "e\u0301", "\u00e9", "cafe\u0301 caf\u00e9", "\u0301", "\u0301\u0302\u0303", " \u0301 ", "a\u0301\u0302\u0303\u0304\u0305b",
    "n\u0303 \u00f1", "o\u0308 \u00f6", "\u212b \u00c5 A\u030a", "\u1e9b\u0323", "q\u0307\u0323 q\u0323\u0307", "\u1100\u1161\u11a8 \uac01", "\u0958 \u0915\u093c",
    "\ufb01ne \ufb02ow \ufb03", "\u00bd \u00b2 \u2460 \u2163", "\uff21\uff22\uff23\uff11\uff12", "\u01c4 \u01c5 \u01c6", "\u0130 \u0131 I i", "\u1e9e \u00df SS",
    "\u03a3 \u03c3 \u03c2 \u039f\u03a3", "\u0345 \u0399", "\u1fb3 \u1fbc \u0391\u0399", "\u2126 \u03a9", "\u0149 \u01f0 \u0390", "\u2c2f\u2c5f", "\ua7ae \u026a", "\u10a0 \u2d00 \u1c90",
    "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "[CLS] [SEP] [MASK]", "a [MASK] in the middle", "[MASK][MASK]", "x[SEP]y", "[cls] [sep]", "[ CLS ]",
    "[CLS", "CLS]", "[[MASK]]", "[unused0]", "[unused5] [UNUSED5]", "##ing", "## ing", "#", "##", "<s> </s> <unk>", "[MASK\u0301]", "\u200b[SEP]\u200b", "\n[SEP]\n",
    "x" * 99, "x" * 100, "x" * 101, "a" * 300 + " b", "ab " * 200, "ü" * 100, "ü" * 101, "u\u0308" * 60, "好" * 120, "𠮷" * 50, "é" * 101 + " end", "😀" * 101, "😀" * 100,
    "https://example.com/a/b?c=d&e=%20f#g", "www.example.co.uk", "name.surname+tag@example.org", "C:\\Users\\me\\file.txt", "/usr/local/bin/python3.11",
    "def f(x): return x**2 + 1  # square", "if (a && b || !c) { return a[i]++; }", "SELECT * FROM t WHERE a='b';", "<div class=\"x\">&amp;</div>", "{\"key\": [1, 2.5e-3, null]}", "x_y_z __init__ snake_case camelCase",
    "0", "007", "3.14159", "1,000,000", "1e10", "-273.15", "+49 (0)30 123456", "0xDEADBEEF", "12345678901234567890", "٣٫١٤ १२३ 一二三 Ⅻ", "½ ¾ ⅓", "1st 2nd 3rd 10%",
    "...", "…", "?!?!", "!!!", "—", "–", "-", "'", "\"", "`", "``x''", "«»", "“”‘’", "()[]{}<>", "@#$%^&*", "€£¥₹₽", "©®™", "°C µm Ω", "≤≥≠≈", "→←↑↓", "a/b", "a|b", "a~b", "a=b", "^", "_", "§¶†‡", "،؛؟", "。、「」『』", "〜～", "・", "᠎", "¿¡",
    "mixed中文and日本語words", "Привет world", "абвgдеж", "user用户123テスト", "ไทยEnglish中文", "한국어English", "עבריתEnglish", "العربيةEnglish", "Ａｂｃ中１", "a中b", "中a文", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒎𝒂𝒕𝒉 𝟙𝟚𝟛", "ｶﾞ ガ ガ", "ℌ ℕ ℝ", "㍻ ㎏ ㏒", "㈱ ㊙", "Ǆ", "ß", "ẞ",
    "\ue000private", "\U000f0000plane15", "\U0010fffd", "\ufff9anchor\ufffb", "\ufdd0", "\uffff", "\U0001f9ff\ufe0f", "\U000e0041tag", "\u034fjoiner", "\u061carabic", "\u115f\u1160\u3164", "\u17b4\u17b5", "\u2800braille⠓⠑⠇⠇⠕", "\u3400\u4dbf\u4e00\u9fff\uf900\ufaff", "\U00020000\U0002a6df\U0002a700\U0002b740\U0002b820\U0002ceb0\U0002f800\U0002fa1f\U00030000", "\u2e80\u2f00\u3007\u3021\u30fb\u31c0",
]


def mixtures(count: int) -> list[str]:
    random.seed(7)
    pieces = [*SENTENCES, *EMOJI, *(text for text in EDGE if text and len(text) < 40)]
    joints = ["", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "-", ", "]
    texts = []
    for _ in range(count):
        parts = random.sample(pieces, random.randint(2, 4))
        cut = [part[: random.randint(1, len(part))] for part in parts]
        texts.append(random.choice(joints).join(cut))
    return texts


def corpus() -> list[str]:
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC") for text in SENTENCES]
    cases = [text.upper() for text in SENTENCES[::2]]
    long = [" ".join(SENTENCES[i : i + 8]) for i in range(0, len(SENTENCES), 8)]
    # Longer than the slices that the Worker encodes at a time, so that most limits fall far before the end.
    very_long = [f"{mark}{' '.join(SENTENCES)}" for mark in ("", "\u0301", "x" * 2040)] + ["好" * 3000, "x" * 5000 + " y", " " * 5000 + "z"]
    return list(dict.fromkeys([*very_long, *SENTENCES, *forms, *cases, *long, *EMOJI, *EDGE, *mixtures(300)]))


if __name__ == "__main__":
    lines = "".join(f"{json.dumps(text)}\n" for text in corpus())
    (Path(__file__).parent / "corpus.jsonl").write_text(lines, "ascii")
