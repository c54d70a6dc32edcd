"""Makes the fixtures of adapters: what PEFT saves beside a base model of this folder, and the logits of both together, in float32.

Development only; needs torch, transformers and peft. Run: python tests/golden/make_adapters.py
With the folder of an adapter that moonshard has written (trainer, then model:save_adapter) and its base model it prints how far
the logits of PEFT's model are from those in FILE.safetensors: python tests/golden/make_adapters.py BASE ADAPTER FILE
"""
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

HERE = Path(__file__).parent


def base_model(folder, classifies):
    kind = AutoModelForSequenceClassification if classifies else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32)


def logits_of(model, ids):
    return model.eval()(ids, attention_mask=torch.ones_like(ids)).logits.detach().contiguous()


def make(name, base, classifies, **options):
    torch.manual_seed(3)
    model = base_model(HERE / base, classifies)
    task = TaskType.SEQ_CLS if classifies else TaskType.CAUSAL_LM
    adapted = get_peft_model(model, LoraConfig(task_type=task, **options))
    for parameter_name, parameter in adapted.named_parameters():
        if "lora_B" in parameter_name or "score" in parameter_name:
            torch.nn.init.normal_(parameter, std=0.2)
    # Not the padding id, which transformers would look for at the end.
    ids = 5 + (torch.arange(18).reshape(3, 6) * 5) % (model.config.vocab_size - 5)
    folder = HERE / name
    adapted.peft_config["default"].base_model_name_or_path = base
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    save_file({"input_ids": ids, "logits": logits_of(adapted, ids)}, folder / "reference.safetensors")


def compare(base, adapter, file):
    told = load_file(file)
    classifies = (Path(adapter) / "adapter_config.json").read_text().find("SEQ_CLS") >= 0
    model = PeftModel.from_pretrained(base_model(base, classifies), adapter)
    print("largest difference", (logits_of(model, told["input_ids"]) - told["logits"]).abs().max().item())


if __name__ == "__main__":
    if len(sys.argv) == 4:
        compare(*sys.argv[1:])
    else:
        make("lora_llama_lm", "llama32_lm_tied", False, r=4, lora_alpha=12, target_modules=["q_proj", "v_proj", "down_proj"])
        make("lora_llama_classify", "llama31_classify", True, r=2, lora_alpha=4, target_modules="all-linear", use_rslora=True)
