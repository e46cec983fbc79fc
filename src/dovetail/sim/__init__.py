"""A whole cluster in one process, over HTTP in real time or in virtual time.

It decides nothing about nodes; it is the cluster that Dovetail acts upon.

    world              API server, controllers, one clock, one seed
    clock              virtual time
    kube               the API server
    cluster            kube-scheduler, kubelet, workload and storage controllers
    aws                a simulated AWS
    volatile_cloud     prices that move, zones that run out, interruptions
    initial_nodes      nodes that are there when a scenario begins
    faults             faults of API requests, by one seed
    transport          requests to the API server without a socket
    certificates       the certificates of the embedded cluster
    state_folder       objects that survive a restart
    scenario           a scenario; scenario_file reads it, scenario_player plays it
    run_recorder       what a run cost; report and report_page show it
"""
