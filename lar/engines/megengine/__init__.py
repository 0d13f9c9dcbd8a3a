"""MegEngine 1.13, through lite (the default) and through the graph driver."""
