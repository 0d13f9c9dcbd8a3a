"""The worker process: it executes one run."""
