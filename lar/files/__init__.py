"""Files and folders that commands read and write."""
