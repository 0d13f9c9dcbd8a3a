"""Results that are kept: read from files of all kinds, grouped and compared."""
