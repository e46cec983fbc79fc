"""The machinery: how Dovetail speaks to a Kubernetes, and how controllers are run.

It knows no rule about pods or nodes.

    kubeconfig · credentials · eks     how to reach a cluster, and who we are to it
    transport · kube · failures        requests and replies; records in and out; what refusals mean
    watch · informer · sight           following a kind, the copy that is kept of it, and all of them together
    queue · manager · throttle         work, and who does it when
    leader                             one process at a time, by a Lease
    events · logs · metrics · health   what people and their tools are told
    compute · clock                    where heavy work is done; the machine's time
"""
