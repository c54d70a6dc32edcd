#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small BPE tokenizers and what the reference makes of text.

Each <name>.json is a tokenizer.json with the pre-tokenizer, normaliser, special tokens and template of
its model family, trained here on text of this repository. expected.json has the texts and, for every
tokenizer, the ids that Hugging Face's `tokenizers` gives (with the template's tokens), and the text that
it decodes them to (without special tokens). tests/data_sources/test_tokenizer.cpp holds the runtime to
them. The files are committed; run this only to change a case:

    python3 -m venv refs && refs/bin/pip install tokenizers==0.23.3
    refs/bin/python tests/golden/make_tokenizers.py            # writes the files
    refs/bin/python tests/golden/make_tokenizers.py --fuzz 10000 moonshard run tests/golden/encode_lines.lua

The second compares random texts with what our program (the words after the number) makes of them.
"""
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "data" / "tokenizers"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SENTENCES = [
    "The quick brown fox doesn't jump; it's tired, they're asleep, we've seen it, I'll go, I'd rather not, I'm done.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Äpfel, Öl, Übermut, Straße.",
    "Voilà déjà l'été; où est-il passé ? Ça, c'est une autre histoire : œuvre, naïveté, Noël.",
    "日本語のテキストです。漢字とひらがなとカタカナが混ざっています。東京は大きい。",
    "中文文本没有空格，分词由字节对决定。北京、上海和广州都很大。",
    "한국어 문장은 띄어쓰기가 있습니다. 서울은 크다.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "النص العربي يكتب من اليمين إلى اليسار. مرحبا بالعالم.",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ กรุงเทพเป็นเมืองใหญ่",
    "हिन्दी में लिखा हुआ वाक्य। नमस्ते दुनिया।",
    "for (int i = 0; i < 10; ++i) {\n    sum += values[i] * 3.14159;\n}\n\n\treturn sum;\r\n",
    "😀 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ ✅ are emoji; 1234567890 and 3.14e-10 and 0x7fff are numbers.",
]


def corpus():
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "data").glob("*.txt"))]
    texts.append((ROOT / "LICENSE").read_text(encoding="utf-8"))
    return texts + SENTENCES * 4


def train(tokenizer, vocab_size):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def split_and_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])


def llama3():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split_and_bytes(LLAMA3)
    train(tokenizer, 1400)
    # Tokens that no merge leads to: only ignore_merges finds them.
    data = json.loads(tokenizer.to_str())
    for word in ("Ġzyxwvut", "ĠBoxk", "xyzzy"):
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    data["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer.to_str()


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split_and_bytes(QWEN2)
    train(tokenizer, 1400)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    # Not special, and looked for after normalisation: written decomposed here.
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False),
                          AddedToken("<vie\u0302\u0323t>", special=False, normalized=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]  # the older form
    return json.dumps(data, ensure_ascii=False)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    train(tokenizer, 1000)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer.to_str()


def roberta():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    train(tokenizer, 700)
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False), AddedToken("</s>", special=True, normalized=False),
                                  AddedToken("<mask>", special=True, lstrip=True, normalized=False),
                                  AddedToken("<sep>", special=True, rstrip=True, normalized=False)])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    return tokenizer.to_str()


# SentencePiece's kind: characters, blanks as U+2581, bytes for what has no token.

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def train_pieces(tokenizer, vocab_size, first):
    # Trained in words, as SentencePiece does it; then the whole text is one piece.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581?[^\u2581\\n]+|\u2581+|\\n+"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=first + BYTES, show_progress=False,
                                  limit_alphabet=300)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = None
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in first]
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return data


def gemma():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    runs = ["\n" * n for n in range(2, 6)] + ["\u2581" * n for n in range(2, 9)] + ["<h1>", "</h1>"]
    data = train_pieces(tokenizer, 1500, names)
    data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    vocab = data["model"]["vocab"]
    for run in runs:
        id = vocab.setdefault(run, len(vocab))
        data["added_tokens"].append({"id": id, "content": run, "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False, "special": False})
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1",
                                                             special_tokens=[("<bos>", vocab["<bos>"])])
    return tokenizer.to_str()


def llama2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    data = train_pieces(tokenizer, 1200, ["<unk>", "<s>", "</s>"])
    data["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


MAKERS = {"llama3": llama3, "qwen2": qwen2, "gpt2": gpt2, "roberta": roberta, "gemma": gemma, "llama2": llama2}


def tricky_texts():
    texts = ["", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a", "a  b", "a\n", "\na", "a \n b", "\n\n\n", " \n \n ", "\r\r\n\n\r",
             "\u00a0", "\u2003x", "\u3000漢", "\u180ex y", "\u200bx", "\ufeffx", "\x85y", "\x0b\x0cz", "\u2028line\u2029par", "\x1c\x1d a"]
    for word in ("'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'rE", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", "'\u017f", "'x"):
        texts += ["it" + word, "IT" + word + "now", " " + word, word]
    texts += ["don''t", "o'clock's", "rock'n'roll", "’s it’s", "'", "''", "'''s"]
    texts += ["1", "12", "123", "1234", "12345678901234567890", "1 2 3", "3.14159", "1,000,000.00", "٣٤٥٦", "१२३४", "½⅓Ⅷ²", "abc123def456", "0x7fff", "1e-10", "4️⃣"]
    texts += SENTENCES
    texts += ["東京", "東京タワー", "ｶﾞｷﾞｸﾞ", "㍿", "ﬁ ﬂ ﬀ", "한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "中 文", "中\n文", "，。！？"]
    texts += ["👨‍👩‍👧‍👦", "👍🏽👍🏿", "🇩🇪🇫🇷", "❤️❤", "🏳️‍🌈", "a😀b", "😀😀😀", "\U0001f9d1\U0001f3fb\u200d\U0001f4bb", "\U00020000\U0002a6d6"]
    texts += ["e\u0301", "\u00e9", "cafe\u0301 <vie\u0323\u0302t> <vi\u1ec7t>", "a\u0323\u0307", "a\u0307\u0323", "\u1e9b\u0323", "\u0344", "\u212b \u2126 \u00c5",
              "q\u0307\u0323\u0301\u0300", "\u0301 alone", "x" + "\u0301\u0323" * 40, "\uac00\u11a8", "\u0958 \u095c", "\u2adc", "ᾷ Ὰͅ", "\u0f73\u0f75"]
    texts += ["مرحبا", "السَّلامُ عَلَيْكُم", "שָׁלוֹם", "ภาษาไทย", "ไทย ไทย", "नमस्ते", "தமிழ்", "မြန်မာ", "ខ្មែរ", "ქართული", "Ελληνικά ΆΈ", "ǅ ǆ Ǆ", "İi ıI", "ẞß"]
    texts += ["tab\tseparated\tvalues", "a\t\tb", "  indented\n    more\n\t\ttabs", "trailing   ", "trailing\n\n", "trailing \t \n", "line\r\nline\r\n", "line\rline",
              "    four", "x     y", "x \n\n y", "!\n\n\nx", "...\n", "?! ;) :-(", "a=b+c*d/e", "{[()]}<>", "--", "———", "___init___", "a_b_c", "#!/bin/sh", "C++20",
              "https://example.org/a?b=c&d=%20e#f", "mail@example.org", "C:\\dir\\file", "\\n\\t", "\"quoted\" “quoted” „quoted“"]
    texts += ["<|begin_of_text|>hello", "<|eot_id|>", "a<|eot_id|>b", "<|eot_id|><|eot_id|>", "<|end_of_text|>\n<|begin_of_text|>", "<|eot_id", "<|eot_id|", "<|<|eot_id|>|>",
              "<|endoftext|>", "x<|endoftext|> y", "<|im_start|>user\nHi<|im_end|>\n", "<tool_call>{}</tool_call>", "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
              "<start_of_turn>user\nHi<end_of_turn>\n", "<bos>x<eos>", "<h1>  Title</h1>\n\n\n", "\u2581", " \u2581 x\u2581y", "<0x0A>", "<unk> x",
              "a <mask> b", "a   <mask>   b", "<mask><mask>", "a <sep>   b", "<sep> <mask> x", "<s>x</s>", " <s> x", "\u00a0<mask>\u3000", "<sep>\n\n<sep>\n"]
    texts += [" zyxwvut", "zyxwvut", " Boxk", "xyzzy", " xyzzy", "xyzzyx", "a xyzzy b"]
    texts += ["a" * 300, "ab" * 400, "0" * 200, " " * 200, " " * 100 + "x", "\n" * 70, "é" * 150, "漢" * 100, "😀" * 60, "!" * 150, "aB3$" * 60, "the" * 100, "e\u0301" * 80]
    texts += ["\x00", "a\x00b", "\x01\x02\x1f", "\x7f\x80\x9f", "\ufffd", "\ufffd\ufffd x", "\ue000\uf8ff", "\U0010ffff", "\ufdd0", "\ud7ff\ue000"]
    generator = random.Random(9)
    for _ in range(20):  # bytes that are no UTF-8, repaired as our documents are
        texts.append(bytes(generator.randrange(256) for _ in range(generator.randrange(1, 40))).decode("utf-8", "replace"))
    texts += [json.loads('"\\ud83d\\ude00"'), "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace")]
    return texts


def random_text(generator):
    pools = ["abcdefghij XYZ", " \t\n\r", "0123456789", "'sStTrReEvVmMlLdD", ".,;:!?-_()[]{}<>|/\\\"", "éàüßñçøå", "日本語漢字中文", "😀👍🏽\u200d\ufe0f❤",
             "\u0301\u0300\u0323\u0327\u0308", "אבגدهو", "กขคา", "\u00a0\u2003\u3000\u180e\u200b\x85\u2028", "½²Ⅷ٣१"]
    pieces = []
    for _ in range(generator.randrange(1, 14)):
        kind = generator.random()
        if kind < 0.05:
            pieces.append(generator.choice(["<|eot_id|>", "<end_of_turn>", "<h1>", "\u2581", "</s>", "\n\n\n", "<0x41>", " " * generator.randrange(2, 40), "<|endoftext|>", "<|im_start|>", "<mask>", "<sep>", "<vie\u0302\u0323t>", "<tool_call>", "<|"]))
        elif kind < 0.15:
            pieces.append(generator.choice(SENTENCES)[:generator.randrange(1, 60)])
        elif kind < 0.22:
            while True:  # any character that Unicode 9 or older has: later ones are in no table of all libraries
                code = generator.randrange(0x110000)
                if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn" or generator.random() < 0.02:
                    break
            pieces.append(chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd")
        else:
            pool = generator.choice(pools)
            pieces.append("".join(generator.choice(pool) for _ in range(generator.randrange(1, 9))))
    return "".join(pieces)


def answers(tokenizer, texts):
    return [{"ids": ids, "text": tokenizer.decode(ids)} for ids in (tokenizer.encode(text).ids for text in texts)]


def answer_of(line):
    ids, _, digits = line.partition("|")
    return {"ids": [int(word) for word in ids.split()], "text": bytes.fromhex(digits).decode("utf-8", "replace")}


def fuzz(count, encoder):
    generator = random.Random(1)
    wrong = 0
    for name in MAKERS:
        path = OUT / f"{name}.json"
        tokenizer = Tokenizer.from_file(str(path))
        texts = [random_text(generator) for _ in range(count)]
        lines = "".join(text.encode().hex() + "\n" for text in texts)
        ours = subprocess.run([*encoder, str(path)], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
        if len(ours) != len(texts):
            sys.exit(f"{name}: {len(ours)} answers for {len(texts)} texts")
        different = [text for text, line, wanted in zip(texts, ours, answers(tokenizer, texts)) if answer_of(line) != wanted]
        print(f"{name}: {len(texts)} random texts, {len(different)} different", *(ascii(text) for text in different[:5]), sep="\n  ")
        wrong += len(different)
    sys.exit(wrong > 0)


def main():
    if sys.argv[1:2] == ["--fuzz"]:
        fuzz(int(sys.argv[2]), sys.argv[3:])
    OUT.mkdir(parents=True, exist_ok=True)
    texts = tricky_texts()
    expected = {"tokenizers": tokenizers.__version__, "texts": texts}
    for name, make in MAKERS.items():
        text = json.dumps(json.loads(make()), ensure_ascii=False, separators=(",", ":"))
        (OUT / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        expected[name] = answers(Tokenizer.from_file(str(OUT / f"{name}.json")), texts)
    text = json.dumps(expected, separators=(",", ":"))
    (OUT / "expected.json").write_text(text + "\n", encoding="utf-8")
    print(len(texts), "texts", {path.name: path.stat().st_size for path in sorted(OUT.glob("*.json"))})


main()
