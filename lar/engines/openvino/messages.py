"""OpenVINO's own messages, and what they mean: messages.json."""

from __future__ import annotations

from lar.engines.meanings import Meanings

MEANINGS = Meanings(__file__)
