"""Two dumps side by side: which tensor is which, how far apart, and which operator is at fault."""
