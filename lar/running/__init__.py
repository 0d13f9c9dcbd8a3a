"""The parent process: it plans a run, starts the worker, and keeps what the run wrote."""
