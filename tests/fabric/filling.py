"""Rates by progressive filling, one link at a time: slow, and plainly right."""

import numpy as np


def progressive_filling(links, capacity, weight=None, count=None):
    flows = len(links)
    weight = np.ones(links.shape) if weight is None else weight
    count = np.ones(flows) if count is None else count
    use = np.zeros((flows, len(capacity)))
    for flow in range(flows):
        for place, link in enumerate(links[flow]):
            if link < len(capacity):
                use[flow, link] += weight[flow, place] * count[flow]
    rates = np.full(flows, np.inf)
    room, active = capacity.astype(float).copy(), use.any(axis=1)
    while active.any():
        demand = use[active].sum(axis=0)
        share = np.full(len(capacity), np.inf)
        share[demand > 0] = room[demand > 0] / demand[demand > 0]
        slowest = int(np.argmin(share))
        hit = active & (use[:, slowest] > 0)
        rates[hit] = share[slowest]
        room = np.maximum(room - (use[hit] * share[slowest]).sum(axis=0), 0.0)
        active &= ~hit
    return rates
