"""(N, K) of real layers, which the GPU benches time.

From the published configurations: Qwen3.8-27B; Muse-Glimmer-30B (hidden size 6656, 32 and 2 heads of 128 with an
output gate, MLP 19968, vocabulary 202048); Llama-3.1-8B (4096, 32 and 8 heads of 128, 14336, 128256); Gemma 12B (3840,
16 and 8 heads of 256, 15360: the third generation's, the fourth's was not found).
"""

from __future__ import annotations

QWEN_27B = {
    "qkv_gate": (14336, 5120),
    "attn_out": (5120, 6144),
    "gdn_in": (16384, 5120),
    "mlp_down": (5120, 17408),
    "gate_up": (34816, 5120),
    "lm_head": (248320, 5120),
}
SHAPES = QWEN_27B | {
    "muse30b_qkv_gate": (8704, 6656),
    "muse30b_attn_out": (6656, 4096),
    "muse30b_gate_up": (39936, 6656),
    "muse30b_mlp_down": (6656, 19968),
    "muse30b_lm_head": (202048, 6656),
    "gemma12b_qkv": (8192, 3840),
    "gemma12b_attn_out": (3840, 4096),
    "gemma12b_gate_up": (30720, 3840),
    "gemma12b_mlp_down": (3840, 15360),
    "llama8b_qkv": (6144, 4096),
    "llama8b_attn_out": (4096, 4096),
    "llama8b_gate_up": (28672, 4096),
    "llama8b_mlp_down": (4096, 14336),
    "llama8b_lm_head": (128256, 4096),
}
