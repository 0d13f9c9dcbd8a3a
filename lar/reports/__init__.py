"""Records made into text, CSV and JSON: pure functions of records, and the files they go to."""
