"""Profiles: what a run has recorded, the file that holds it, and what is computed from it."""
