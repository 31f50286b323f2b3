"""One file per benchmark: its spec, and how to recognise its folder layouts. Light: no torch."""
