"""Inputs: from the texts of `--input` to the arrays that a model is fed with.

text → grammar → readers (files and numbers) → model_inputs (which input, does it fit) → feed
                 images (files, and the settings size, channels, mean, layout)
                 dtypes (conversion, generated data)
"""
