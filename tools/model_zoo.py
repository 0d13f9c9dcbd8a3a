"""The architectures: what each model of lar consists of.

Image models take `data`, (1, 3, 224, 224) float32, BGR with values 0 to 255 as `cv2.imread` gives
them: no preprocessing is needed outside, the batch norm folded into the first convolution does
it. All end in `logits`. The text beside this has them.
"""

from __future__ import annotations

from network import read_networks

NETWORKS = read_networks(__file__)
