"""The zonalshift controller polls ARC, writes ZoneShifts, marks Nodes and edits NodePools."""
