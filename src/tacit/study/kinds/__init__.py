"""One file per kind of run: its settings, its checks and how it is named.

`tacit/simulation/kinds/` plays them.
"""
