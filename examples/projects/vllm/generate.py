"""Complete a few prompts with a model of the Hugging Face hub or of a folder: python generate.py MODEL."""

import sys

from vllm import LLM, SamplingParams

PROMPTS = ["The capital of France is", "A tensor is"]

if __name__ == "__main__":
    model = LLM(model=sys.argv[1])
    for output in model.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=16)):
        print(output.prompt, output.outputs[0].text)
