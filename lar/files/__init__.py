"""Files and folders: where a command reads and writes."""
