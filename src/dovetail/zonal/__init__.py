"""A zone is impaired: what to gate, protect and edit, and the undo to the byte.

Pure: polls, events and objects go in as plain values, changes come out. Asking ARC, reading queues and
writing to Kubernetes is done in controllers/zonal.

    shifts   what ARC says, by kind and policy       impaired  which zones count, and which are refused
    pools    edits of NodePools and their undo       nodes     marks on nodes and their undo
    machine  one shift from Pending to Restored      events    what a message says; never the truth
"""
