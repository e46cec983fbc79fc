"""What is in the cluster right now?

Watch events are folded into nodes, NodeClaims and pods, from which a Snapshot is taken at one instant. It
decides nothing and writes nothing; it is touched on the event loop only, never across an await.

    cluster         watch events folded              capture           Cluster to Snapshot
    tracked_node    a Node, its NodeClaim, its pods  offline           a Snapshot from manifests in files
    nodepool_state  NodeClaims of static NodePools   workload_pods     the pods a workload would make
    pod_times       when a pod was seen and placed   default_nodepool  a NodePool for who has none
    unreadable      what would be set aside          nodepool_change   what an edited NodePool does to nodes
    changes         a world with objects applied     changed_pods      its nodes, pods and budgets after that
    changed_workloads  the pods of a changed workload: who leaves, who comes, and the peak of a rollout
"""
