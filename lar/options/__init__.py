"""Options: every flag declared once, and the values it takes."""
