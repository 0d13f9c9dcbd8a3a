"""Inputs: from the texts of `--input` to the arrays that a model is fed with.

text → grammar → readers → matching (which input, does it fit) → feed
               → literals  image_settings (size, channels, mean, layout)
               → generation
"""
