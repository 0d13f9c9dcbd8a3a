"""The records of lar: frozen, plain data that functions pass on and files store."""
