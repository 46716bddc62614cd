"""The engines: the plan of a flow, and who carries its packets and keeps its state."""
