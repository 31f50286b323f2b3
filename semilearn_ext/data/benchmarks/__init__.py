"""One module per benchmark: its spec and how its folder layouts are recognised. Does not import torch."""
