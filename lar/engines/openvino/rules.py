"""Which options need or exclude which others on OpenVINO: `rules.json`."""

from __future__ import annotations

from lar.options.rules import read_rules

RULES = read_rules(globals())
