"""Reports: pure functions that turn records into text, CSV, JSON, Markdown and HTML."""
