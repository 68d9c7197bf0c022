"""GPT-2 medium on sequences of 1,024 tokens: Radford et al., "Language Models are Unsupervised Multitask Learners"
(2019), table 2: 24 blocks of width 1,024 with 16 heads. Kept bytes: Korthikanti et al., arXiv 2205.05198, section 4.1,
in 32 bits.
"""

from __future__ import annotations

from bapipe.examples.kernels import ELEMENT_BYTES, Work, network, pointwise, product
from bapipe.examples.sequences import embedding, layer_norm, linear, project
from bapipe.operators import Attention, Elementwise, Linear, Normalisation, Operator
from bapipe.problem import ModelProfile

BLOCKS, WIDTH, HEADS, TOKENS, VOCABULARY = 24, 1024, 16, 1024, 50_257
STREAM = TOKENS * WIDTH
SCORES = HEADS * TOKENS**2


def gpt2_medium() -> ModelProfile:
    """A chain: embedding, an attention and an MLP layer a block (each with its norm and residual addition), the final
    norm, and the head as a copy of its own.
    """
    works = [embedding("embedding", VOCABULARY + TOKENS, WIDTH, TOKENS, tables=2)]
    for block in range(BLOCKS):
        works += [_attention(f"h.{block}.attn"), _mlp(f"h.{block}.mlp")]
    works += [_final_norm("ln_f"), linear("head", WIDTH, VOCABULARY, TOKENS, bias=False)]
    untied = (
        "GPT-2 ties its head to the token embedding; here the head holds a copy of its own, with its own gradient "
        f"and optimizer state: {VOCABULARY * WIDTH:,} parameters more than published"
    )
    return network("gpt2-medium", works, __doc__ or "", warnings=[untied])


def _attention(name: str) -> Work:
    """Norm; queries, keys and values; scores of every pair of tokens, softmax, dropout, context; projection, dropout
    and residual addition. Kept: the norm's output, queries, keys, values, context (5 streams), a mask, softmax and its
    dropout with a mask, and the output.
    """
    kernels = (
        layer_norm(WIDTH, TOKENS),
        project(WIDTH, 3 * WIDTH, TOKENS),
        product(2 * STREAM, SCORES, 2.0 * TOKENS**2 * WIDTH),
        pointwise(SCORES, SCORES, 5 * SCORES),
        pointwise(SCORES, SCORES),
        product(SCORES + STREAM, STREAM, 2.0 * TOKENS**2 * WIDTH),
        project(WIDTH, WIDTH, TOKENS),
        pointwise(2 * STREAM, STREAM, 2 * STREAM),
    )
    parameters = 4 * WIDTH**2 + 6 * WIDTH
    kept_bytes = STREAM * (5 * ELEMENT_BYTES + 1) + SCORES * (2 * ELEMENT_BYTES + 1) + STREAM * ELEMENT_BYTES
    operators = (
        Normalisation(kind="normalisation", elements=STREAM),
        _linear(WIDTH, 3 * WIDTH),
        Attention(kind="attention", queries=TOKENS, keys=TOKENS, heads=HEADS, head_features=WIDTH // HEADS),
        Elementwise(kind="elementwise", elements=SCORES),
        _linear(WIDTH, WIDTH),
        Elementwise(kind="elementwise", elements=STREAM, operations=2),
    )
    cache, kind = 2.0 * WIDTH * ELEMENT_BYTES, f"Attention({WIDTH}, heads={HEADS})"
    return Work(name, kind, kernels, operators, parameters, STREAM, kept_bytes, kv_bytes_per_token=cache)


def _mlp(name: str) -> Work:
    """Norm; projection to four times the width, GELU, and back; dropout and residual addition. Kept: the norm's output,
    GELU's input and output (9 streams), a mask, and the output.
    """
    kernels = (
        layer_norm(WIDTH, TOKENS),
        project(WIDTH, 4 * WIDTH, TOKENS),
        pointwise(4 * STREAM, 4 * STREAM, 8 * 4 * STREAM),
        project(4 * WIDTH, WIDTH, TOKENS),
        pointwise(2 * STREAM, STREAM, 2 * STREAM),
    )
    parameters = 8 * WIDTH**2 + 7 * WIDTH
    kept_bytes = STREAM * (9 * ELEMENT_BYTES + 1) + STREAM * ELEMENT_BYTES
    operators = (
        Normalisation(kind="normalisation", elements=STREAM),
        _linear(WIDTH, 4 * WIDTH),
        Elementwise(kind="elementwise", elements=4 * STREAM, operations=8),
        _linear(4 * WIDTH, WIDTH),
        Elementwise(kind="elementwise", elements=STREAM, operations=2),
    )
    return Work(name, f"Linear MLP({WIDTH}, {4 * WIDTH})", kernels, operators, parameters, STREAM, kept_bytes)


def _final_norm(name: str) -> Work:
    kernels = (layer_norm(WIDTH, TOKENS),)
    operators = (Normalisation(kind="normalisation", elements=STREAM),)
    return Work(name, f"LayerNorm({WIDTH})", kernels, operators, 2 * WIDTH, STREAM, STREAM * ELEMENT_BYTES)


def _linear(inputs: int, outputs: int) -> Operator:
    return Linear(kind="linear", in_features=inputs, out_features=outputs, rows=TOKENS)
