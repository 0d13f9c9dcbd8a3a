"""The options: each flag is declared once, with the values that it accepts."""
