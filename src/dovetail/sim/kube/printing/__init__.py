"""Tables as `kubectl get` prints them.

tables   a table of objects of one kind
rows     the columns of built-in kinds; the rarer ones in rows_rest
cells    single values as text: ages, labels, selectors, ports
"""
