"""Counts the metric series that features of the flight recorder add, in a process of its own.

python -m support.series POOLS NODES FOLDER
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from dovetail.sim.clock import run_virtual
from support.builders import nodepool, pod
from support.world import Scene

__all__ = ["ADDED", "LABELS"]

# What these features add begins so, and is told apart by nothing that a cluster has many of.
ADDED = (
    *("dovetail_history_", "dovetail_decision_log_", "dovetail_notifications_", "dovetail_notify_"),
    *("dovetail_recording_", "dovetail_shadow_", "dovetail_replay_"),
)
LABELS = frozenset(("kind", "to", "sink", "result", "whose", "le"))
SINKS = "apiVersion: dovetail.sh/v1alpha1\nkind: Notify\nsinks:\n"


async def live(pools: int, nodes: int, folder: Path) -> str:
    """A cluster of so many pools and nodes, with every feature on; what its metrics say in brief."""
    flags = (
        f"--decision-log=log,file:{folder}/log",
        f"--notify-file={folder}/notify.yaml",
        f"--recording=file:{folder}/recording",
        "--metrics-detail=brief",
        "--batch-idle-duration=1s",
    )
    scene = Scene(flags=flags)
    async with scene.running():
        for number in range(pools):
            scene.apply(nodepool(f"pool-{number}", consolidate_after="30s"))
        for number in range(nodes):
            selector = {"karpenter.sh/nodepool": f"pool-{number % pools}"}
            scene.apply(pod(f"pod-{number}", cpu="3", node_selector=selector))
        await scene.until(lambda: len(scene.nodes()) >= nodes, 3600)
        await scene.sleep(120)
        for number in range(0, nodes, 2):
            scene.api.delete("pods", f"pod-{number}", "default")
        await scene.sleep(600)
        return scene.dovetail.render_metrics().decode()


if __name__ == "__main__":
    place = Path(sys.argv[3])
    sinks = "".join(f"- {{name: sink-{each}, to: 'file:{place}/told-{each}'}}\n" for each in range(3))
    (place / "notify.yaml").write_text(SINKS + sinks)
    text = run_virtual(live(int(sys.argv[1]), int(sys.argv[2]), place))
    series = [line.rpartition(" ")[0] for line in text.splitlines() if line.startswith(ADDED)]
    for name, count in Counter(each.partition("{")[0] for each in series).items():
        print(count, name)
    print(len(series), "series")
