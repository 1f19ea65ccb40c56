"""Complete a few prompts with a model of the Hugging Face hub or of a folder: python generate.py MODEL."""

import sys

import sglang

PROMPTS = ["The capital of France is", "A tensor is"]

if __name__ == "__main__":
    engine = sglang.Engine(model_path=sys.argv[1])
    outputs = engine.generate(PROMPTS, {"temperature": 0, "max_new_tokens": 16})
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        print(prompt, output["text"])
    engine.shutdown()
