"""Small networks in which faults are planted, read from the text beside this module."""

from __future__ import annotations

from network import read_networks

NETWORKS = read_networks(__file__)
# Networks of images, which MegEngine can run in blocks of four channels.
IN_BLOCKS = ("plain_cnn", "residual", "inverted", "branches", "excitation", "picture", "dense")
