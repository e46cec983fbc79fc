"""Which nodes should be removed, and what replaces them?

Pure: a Situation goes in, commands with their reasons come out. It deletes nothing and waits for
nothing; controllers/disruption.py does.

    situation   what any decision is made from;        choose      the order of methods, and what one found
    candidates  which nodes may be removed, or why     methods/    emptiness, drift, consolidation, split,
                each is blocked; what moving costs                 rebalance: the rule and choice of each
    budgets     how many nodes of a NodePool may       simulation/ where the pods would be scheduled without
                be disrupted now                                   these nodes
    policy      savings, rest and rates that a         robustness  does it hold whatever kube-scheduler does?
                NodePool asks for                      projection  the next input, with commands under way
    replacement_backoff  the wait after a              validate    is a command still right a while later?
                replacement was lost                   report      plan --disruption: every turn, every reason
    command     nodes to remove and their              verdict_cache, node_changes
                replacements                                       what need not be decided again
    verdict     can one cheaper node or none replace these? If not, why not
    pricing_rules  what the rules of a cluster cost: rules (their names), lifted_rules, settling (all that
                disruption would do), held_price, shape_price
"""
