"""One checkpoint in two engines: stock SGLang on a GPU and the reference engine, token by token.

Three steps: :mod:`.prompts` writes what both are asked, :mod:`.sglang_box` asks SGLang (on the GPU machine; it needs
nothing but the standard library), :mod:`.compare` asks the reference engine and writes the report.
"""
