"""The search for the fastest settings that keep the numbers right: `lar tune`."""
