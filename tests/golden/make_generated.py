"""Makes generated.json: what transformers' generate, greedy and with its own cache, puts behind two prompts, for every language model of
this folder, in float32.

Development only; needs torch and transformers (5.22.2 made the file). Run: python tests/golden/make_generated.py
"""
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
NEW_TOKENS = 24

cases = {}
for folder in sorted(HERE.glob("*_lm*")):
    if folder.name.startswith("lora_"):
        continue
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for prompt in ([5, 9, 3, 17, 11, 8, 20], [4, 21, 6]):
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=None,
                             pad_token_id=0)
        rows.append({"prompt": prompt, "tokens": out[0, len(prompt):].tolist()})
    cases[folder.name] = rows
(HERE / "generated.json").write_text(json.dumps(cases, indent=1, sort_keys=True) + "\n")
