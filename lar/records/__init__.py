"""The records that lar passes around and writes: frozen, plain data."""
