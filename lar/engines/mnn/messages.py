"""What MNN and its converter print, and what it means: messages.json."""

from __future__ import annotations

from lar.engines.meanings import Meanings

MEANINGS = Meanings(__file__)
