"""The architectures of the models of `make_models.py`, read from `model_zoo.txt`.

Image models take `data`, (1, 3, 224, 224) float32, BGR with values 0 to 255 as `cv2.imread` gives
them. They need no preprocessing, since the batch norm that is folded into the first convolution
scales the pixels. The output of each image model is `logits`.
"""

from __future__ import annotations

from network import read_networks

NETWORKS = read_networks(__file__)
