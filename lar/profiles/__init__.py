"""Profiles: what a run has recorded, the file it is kept in, and the reports made of it."""
