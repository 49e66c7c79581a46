"""How an answer was found, as `tier` in JSON: one spelling for every verb."""

CLOSED_FORM = "closed form"
FLOW_LEVEL = "flow level"
SIMULATION = "simulation"
SAMPLED = "sampled"
TRACED = "traced"
TIERS = (CLOSED_FORM, FLOW_LEVEL, SIMULATION, SAMPLED, TRACED)
