"""The search for the fastest settings whose outputs are right: `lar tune`."""
